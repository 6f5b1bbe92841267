"""A process and everything that it started, also what has left its group."""

import contextlib
import time

import psutil

_GONE_WITHIN = 10.0
_LOOK_EVERY = 0.01


def family_of(pid: int) -> list[psutil.Process]:
    """What process `pid` has started, and what that has; to be asked while it lives."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def kill_all(family: list[psutil.Process]) -> None:
    """SIGKILL, and wait until all have ended.

    A zombie has. Orphans stay zombies where nobody reaps them, as in containers without an init.
    """
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + _GONE_WITHIN
    while any(map(_runs, family)) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
