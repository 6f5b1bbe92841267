"""Drives asyncdlock under contention, injects faults, and judges from the recorded history."""

import os

# gRPC's fork handlers crash children that are forked while an etcd client lives in the parent. The
# harness forks only to start other programs, which need no gRPC of ours.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
