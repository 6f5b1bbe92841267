"""Benchmarks: asyncdlock, its peers and the raw limit, on the same work, side by side in one run."""

import os

# As `python -m harness` does, and before anything imports gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
