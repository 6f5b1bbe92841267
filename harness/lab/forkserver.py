"""The process that participants are forked from: it has loaded everything, and runs nothing itself.

Loading Python and its libraries takes a core for most of a second, a fork some ten milliseconds. No
event loop and no thread exists here, so that a fork is safe.

Usage: python -m harness.lab.forkserver SOCKET
"""

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from asyncdlock.backend import schemes
from harness.lab.event import Event

_PR_SET_PDEATHSIG = 1


class Channel:
    """The child's end of its connection to the experiment.

    What was said is with the kernel when `say` returns, also if the process is killed the moment after.
    """

    def __init__(self, path: str, hello: Event) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        # Unbuffered: what came together with a line that was heard must still wake who watches `fileno`.
        self._incoming = self._socket.makefile("rb", buffering=0)
        self._send(hello)

    def _send(self, event: Event) -> None:
        self._socket.sendall(event.line())

    def say(self, event: str, /, **details: Any) -> None:
        """Something happened just now.

        :raises OSError: nobody listens any more.
        """
        self._send(Event.happened(event, **details))

    def hear(self) -> Event | None:
        """Block, event loop and all, until something is said to us; None when there will be no more."""
        line = self._incoming.readline()
        return Event.parse(line) if line else None

    def fileno(self) -> int:
        return self._socket.fileno()


Role = Callable[[Mapping[str, Any], Channel], None]
"""What a participant does: a function at the top of a module, called with its specification."""


def name_of(role: Role) -> str:
    """How a role is named in an order to fork."""
    return f"{role.__module__}:{role.__qualname__}"


def main(path: str) -> None:
    for module in sorted(set(schemes().values())):
        with contextlib.suppress(ImportError):  # whoever needs it is told which extra is not installed
            importlib.import_module(module)
    gc.freeze()  # what is shared with the children stays shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for: the kernel reaps them
    orders = Channel(path, Event.happened("forkserver"))
    while (order := orders.hear()) is not None:
        module, _, function = order.details["role"].partition(":")
        role: Role = getattr(importlib.import_module(module), function)  # once, for all that follow
        if os.fork() == 0:
            os.close(orders.fileno())
            _live(path, role, order)


def _live(path: str, role: Role, order: Event) -> NoReturn:
    code = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        hello = Event.happened("participant", id=order.details["id"], pid=os.getpid())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody wants to know any more
            role(order.details["spec"], Channel(path, hello))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # into the log; the forkserver's stack is not ours to unwind
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
