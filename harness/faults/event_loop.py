"""Freezes this process's event loop by blocking it, as a garbage collector or a long C call does."""

import time

from harness.faults.journal import FaultJournal


def stall_event_loop(journal: FaultJournal, seconds: float, *, who: str = "event loop") -> None:
    """Block the calling thread: no task, no timer and no renewal of this loop runs meanwhile.

    Not an `async with` block, because nothing can run in one. The loop of another process is frozen
    by its own `python -m harness worker --pause`, which blocks in the same way.
    """
    with journal.fault("event loop frozen", who=who, seconds=seconds):
        time.sleep(seconds)
