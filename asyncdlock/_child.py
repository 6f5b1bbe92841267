"""A command that runs under a lock: signals are passed on to it, and it does not outlive the lock."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY = 0.05


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
        elif self.child.returncode is None and not _has_it_already(number):
            # Not `send_signal`: it looks whether the command has ended, and takes the exit code from asyncio.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.child.pid, number)


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

    Cancelled, which is what `hold()` does when the lock is lost, it stops the command first, and on Linux all
    that it has started: by SIGTERM, and after `grace` seconds by SIGKILL.

    :raises OSError: it cannot be started.
    """
    loop = asyncio.get_running_loop()
    with _orphans_come_to_us():
        child = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **environment}, preexec_fn=_dies_with_us()
        )
        if sys.platform == "linux":
            loop.add_signal_handler(signal.SIGCHLD, _bury_orphans, child.pid)
            _bury_orphans(child.pid)  # those that ended before we listened
        signals.child = child
        try:
            code = await child.wait()
        except asyncio.CancelledError:
            await _stop(child, grace)
            raise
        finally:
            loop.remove_signal_handler(signal.SIGCHLD)
    return code if code >= 0 else 128 - code


async def _stop(child: asyncio.subprocess.Process, grace: float) -> None:
    """Return when no process is left that we may stop."""
    _send(child, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace):
            while _running(child):  # noqa: ASYNC110 - nobody tells us of other processes' children
                await asyncio.sleep(_LOOK_EVERY)
    # Whoever is started meanwhile is found by the next look.
    while _send(child, signal.SIGKILL):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_EVERY)


def _send(child: asyncio.subprocess.Process, number: signal.Signals) -> int:
    """How many it was sent to; another user's process, as of `sudo`, takes none from us."""
    sent = 0
    for pid in _running(child):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            sent += 1
    return sent


def _running(child: asyncio.subprocess.Process) -> list[int]:
    """The command and what it has started, as far as they can be found."""
    if sys.platform != "linux":
        return [] if child.returncode is not None else [child.pid]
    return list(_descendants(os.getpid()))


def _descendants(ancestor: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # PID (NAME) STATE PARENT …, and a name may contain anything.
            state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(folder.name))
    found = [ancestor]
    for pid in found:
        below = children.get(pid, [])
        found += below
        yield from below


@contextlib.contextmanager
def _orphans_come_to_us() -> Iterator[None]:
    """On Linux what a command has left behind becomes a child of ours, and can be found."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is not None:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _bury_orphans(command: int) -> None:
    """Those that have ended; how the command did, asyncio asks itself."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == command:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def _dies_with_us() -> Callable[[], object] | None:
    """On Linux the kernel kills the command when this process is killed, who could not do so any more."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # before the fork: the child must not load anything
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
