"""A command that runs under a lock: signals are passed on to it, and it does not outlive the lock."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PR_SET_PDEATHSIG = 1


class Signals:
    """What a signal to this process does: ends its wait for the lock, then goes to the command."""

    def __init__(self, waiting: "asyncio.Task[object]") -> None:
        self._waiting = waiting
        self.child: asyncio.subprocess.Process | None = None
        self.ended_by: int | None = None
        """The signal that ended the wait."""

    def __enter__(self) -> "Signals":
        loop = asyncio.get_running_loop()
        for number in _FORWARDED:
            loop.add_signal_handler(number, self._came, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in _FORWARDED:
            loop.remove_signal_handler(number)

    def _came(self, number: int) -> None:
        if self.child is None:
            self.ended_by = number
            self._waiting.cancel()
        elif not _has_it_already(number):
            with contextlib.suppress(ProcessLookupError):
                self.child.send_signal(number)


def _has_it_already(number: int) -> bool:
    """Whether the terminal has sent this signal to the command as well."""
    if number not in (signal.SIGINT, signal.SIGQUIT):
        return False
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else 0) == os.getpgrp()
    except (OSError, ValueError):
        return False  # no terminal


async def run(
    command: Sequence[str], environment: Mapping[str, str], signals: Signals, *, grace: float
) -> int:
    """Run `command` to its end, and return its exit code, 128 + n when signal n ended it.

    Cancelled, which is what `hold()` does when the lock is lost, it stops the command first: by SIGTERM, and
    after `grace` seconds by SIGKILL.

    :raises OSError: it cannot be started.
    """
    child = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environment}, preexec_fn=_dies_with_us()
    )
    signals.child = child
    try:
        code = await child.wait()
    except asyncio.CancelledError:
        await _stop(child, grace)
        raise
    return code if code >= 0 else 128 - code


async def _stop(child: asyncio.subprocess.Process, grace: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    try:
        async with asyncio.timeout(grace):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def _dies_with_us() -> Callable[[], object] | None:
    """On Linux the kernel kills the command when this process is killed, who could not do so any more."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # before the fork: the child must not load anything
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
