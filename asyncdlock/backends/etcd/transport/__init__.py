"""What carries requests to a member: HTTP/2 of this package's own, or gRPC's library. Neither knows etcd."""
