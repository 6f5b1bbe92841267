"""`python -m harness`, which is also the program `harness`."""

import os
import sys

from harness.cli.main import main


def run() -> int:
    """The program."""
    # gRPC's fork handlers crash children that are forked while an etcd client lives in the parent. This
    # program forks only to start other programs, which need no gRPC of ours.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    return main()


if __name__ == "__main__":
    sys.exit(run())
