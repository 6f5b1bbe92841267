"""Where faults are written down: name, start, end and details, on the run's clock."""

import contextlib
from collections.abc import Iterator
from typing import Any

from harness.clock import now
from harness.rows import Fault


class FaultJournal:
    """The faults of one run, in the order in which they began.

    `origin` is the run's start on `clock.now()`: the lines carry times relative to it, as all rows of
    a history do.
    """

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self._faults: list[Fault] = []
        self._going_on: dict[int, Fault] = {}

    @property
    def faults(self) -> list[Fault]:
        """All so far, also those that still go on: these have no end."""
        return sorted([*self._faults, *self._going_on.values()], key=lambda fault: fault.at)

    @contextlib.contextmanager
    def fault(self, name: str, **details: Any) -> Iterator[None]:
        """Enter when the fault has begun, leave when it has ended, whatever happened in between."""
        fault = Fault(name, now() - self.origin, None, details)
        self._going_on[id(fault)] = fault
        try:
            yield
        finally:
            del self._going_on[id(fault)]
            self._faults.append(Fault(name, fault.at, now() - self.origin, details))

    def moment(self, name: str, **details: Any) -> None:
        """A fault without duration, such as a kill."""
        at = now() - self.origin
        self._faults.append(Fault(name, at, at, details))
