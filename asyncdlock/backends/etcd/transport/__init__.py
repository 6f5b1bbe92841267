"""What carries requests to a member: this package's own HTTP/2, or gRPC's library. Neither knows etcd."""
