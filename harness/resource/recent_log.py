"""A log in memory, for stores that keep none: the newest rows, and where they begin."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from harness.load.clock import now
from harness.resource.decision import Write
from harness.resource.store import LOG_PAGE, LogRow, Retention, Written, log_row

LOG_ROWS = 200_000
"""Kept unless told otherwise: about 500 bytes each."""

_DECIDED = LogRow._fields.index("decided")


class RecentLog:
    """Rows are numbered from `after` + 1."""

    def __init__(self, retention: Retention, *, after: int = 0) -> None:
        self._most_age = int(retention.age * 1e9)
        # Plain tuples: the garbage collector stops looking at them, unlike at named ones.
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=retention.rows or LOG_ROWS)
        self._last = after

    def append(self, write: Write, written: Written) -> None:
        self._last += 1
        self._rows.append(tuple(log_row(self._last, write, written)))
        oldest = now() - self._most_age
        while len(self._rows) > 1 and self._rows[0][_DECIDED] < oldest:
            self._rows.popleft()

    def forget(self) -> None:
        """Something was decided elsewhere: leave a number out, and drop what stands before it."""
        self._last += 1
        self._rows.clear()

    @property
    def begins(self) -> int:
        """The smallest number that has not been dropped."""
        return self._rows[0][0] if self._rows else self._last + 1

    def pages(self, after: int) -> Iterator[list[LogRow]]:
        """The rows with a larger number, `LOG_PAGE` at a time; rows may come and go in between."""
        while self._rows:
            skipped = max(0, after + 1 - self._rows[0][0])
            page = [LogRow(*row) for row in islice(self._rows, skipped, skipped + LOG_PAGE)]
            if not page:
                return
            yield page
            after = page[-1].seq
