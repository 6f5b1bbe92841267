"""What a fleet measured: plain data between the run, its summary and its report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.history import Fault
from harness.history.recording import Recording
from harness.load.pauses import PauseCounts


@dataclass(slots=True)
class FleetResult:
    """What the members measured, and how they ended."""

    start: int
    """The run's origin on the monotonic clock."""
    recording: Recording
    histories: list[Path]
    capabilities: Mapping[str, Any]
    seconds: float = 0.0
    """From the start until the last arrival was over."""
    cpu: list[float] = field(default_factory=list)
    """Share of one core that each process used."""
    commands: int | None = None
    """What the lock client sent to its server; `None` when the backend does not count."""
    max_loop_lag: float = 0.0
    dropped: int = 0
    pauses: list[PauseCounts] = field(default_factory=list)
    """What held each process up."""
    failures: list[str] = field(default_factory=list)
    """One sentence for each process that did not end in good order."""
    silence: list[str] = field(default_factory=list)
    """What processes said of a lock server that did not answer them at the end."""
    faults: list[Fault] = field(default_factory=list)
    """What the processes did to their own holders, on purpose."""


def all_together(counts: Iterable[int | None]) -> int | None:
    """Their sum; `None` when one of them is not known."""
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None
