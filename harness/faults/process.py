"""Freezes or kills a client process: SIGSTOP, SIGCONT, SIGKILL."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import psutil

from harness.faults.journal import FaultJournal

_STOPS_WITHIN = 10.0


@contextlib.asynccontextmanager
async def frozen_process(journal: FaultJournal, pid: int, *, who: str = "process") -> AsyncIterator[None]:
    """The process stands still for as long as the body runs; entered once the kernel has stopped it.

    It notices nothing: its clocks have moved on when it is continued.

    :raises ProcessLookupError: there is no such process.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        await _until_stopped(pid)
        with journal.fault("process frozen", who=who, signal="SIGSTOP"):
            yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill_process(journal: FaultJournal, pid: int, *, who: str = "process") -> None:
    """kill -9: no clean-up, no goodbye. Reaping is left to the parent.

    :raises ProcessLookupError: there is no such process.
    """
    os.kill(pid, signal.SIGKILL)
    journal.moment("process killed", who=who)


async def _until_stopped(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        async with asyncio.timeout(_STOPS_WITHIN):
            while process.status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110 - the kernel offers no event
                await asyncio.sleep(0.001)
    except psutil.NoSuchProcess:
        raise ProcessLookupError(f"process {pid} has ended") from None


def cancel_storm(journal: FaultJournal, pid: int, *, who: str = "process") -> None:
    """Tell a participant, by SIGUSR1, to cancel all that it is doing: what is left over shows afterwards.

    :raises ProcessLookupError: there is no such process.
    """
    os.kill(pid, signal.SIGUSR1)
    journal.moment("cancel storm", who=who)
