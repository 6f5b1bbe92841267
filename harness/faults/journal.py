"""Where faults are written down: name, start, end and details, on the run's clock."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.history.rows import Fault
from harness.load.clock import now


@dataclass(slots=True)
class _OpenFault:
    """A fault on the machine's monotonic clock."""

    name: str
    details: Mapping[str, Any]
    at: int
    until: int | None = None


class FaultJournal:
    """The faults of one run, in the order in which they began.

    `origin` is the run's start on `clock.now()`: the lines carry times relative to it, as all rows of
    a history do. What began before the run counts from its start.
    """

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self._entries: list[_OpenFault] = []

    @property
    def faults(self) -> list[Fault]:
        """All so far; those that still go on have no end."""
        return [
            Fault(
                entry.name,
                max(0, entry.at - self.origin),
                None if entry.until is None else max(0, entry.until - self.origin),
                entry.details,
            )
            for entry in self._entries
        ]

    @contextlib.contextmanager
    def fault(self, name: str, **details: Any) -> Iterator[None]:
        """Enter when the fault has begun, leave when it has ended, whatever happened in between."""
        entry = _OpenFault(name, details, now())
        self._entries.append(entry)
        try:
            yield
        finally:
            entry.until = now()

    def moment(self, name: str, **details: Any) -> None:
        """A fault without duration, such as a kill."""
        at = now()
        self._entries.append(_OpenFault(name, details, at, at))
