"""The process that a crew is forked from: it has loaded everything, and runs nothing itself.

Loading Python and its libraries takes a core for most of a second, a fork some ten milliseconds. No
event loop and no thread exists here, so that a fork is safe.

Usage: python -m harness.experiments.trials.nursery SOCKET MODULE...
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from harness.clock import now

_PR_SET_PDEATHSIG = 1


class Line:
    """The child's end of its connection to whoever started it: one JSON object a line.

    What was said is with the kernel when `say` returns, also if the process is killed the moment after.
    """

    def __init__(self, path: str, hello: dict[str, Any]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._incoming = self._socket.makefile("rb")
        self.send(hello)

    def send(self, message: dict[str, Any]) -> None:
        """:raises OSError: nobody listens any more."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def say(self, event: str, **details: Any) -> None:
        """Something happened just now; details that are None are left out."""
        facts = {name: value for name, value in details.items() if value is not None}
        self.send({"event": event, "at": now(), **facts})

    def hear(self) -> Any:
        """Block, event loop and all, until a message comes; None when there will be no more."""
        line = self._incoming.readline()
        return json.loads(line) if line else None

    def fileno(self) -> int:
        return self._socket.fileno()


Role = Callable[[Any, Line], None]
"""What a member of the crew does: `role(spec, line)`, named as `module:function`."""


def main(path: str, *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # what is shared with the children stays shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for: the kernel reaps them
    orders = Line(path, {"nursery": os.getpid()})
    while (order := orders.hear()) is not None:
        if os.fork() == 0:
            os.close(orders.fileno())
            _live(path, order)


def _live(path: str, order: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        module, _, function = order["role"].partition(":")
        role: Role = getattr(importlib.import_module(module), function)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody wants to know any more
            role(order["spec"], Line(path, {"member": order["id"], "pid": os.getpid()}))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # into the crew's log; the nursery's stack is not ours to unwind
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
