"""`python -m harness`, which is also the program `harness`."""

import os
import signal
import sys

from harness import exits


def run() -> int:
    """The program."""
    # gRPC's fork handlers crash children that are forked while an etcd client lives in the parent. This
    # program forks only to start other programs, which need no gRPC of ours.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    _open_standard_streams()
    # Every command cleans up after Ctrl-C; SIGTERM alone would end it at once and leave its folders behind.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        from harness.cli.main import main  # takes a moment, in which a Ctrl-C may come

        return main()
    except KeyboardInterrupt:
        print("harness: interrupted", file=sys.stderr)
        return exits.INTERRUPTED


def _open_standard_streams() -> None:
    """Those that came closed, as with `>&-`, lead nowhere.

    Else the next files get their numbers, for which libuv aborts.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as long as the program


if __name__ == "__main__":
    sys.exit(run())
