"""The store that forgets: everything in this process, nothing on disk."""

from collections import deque
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

from harness.load.clock import now
from harness.resource.decision import (
    READ,
    Fencing,
    Mark,
    Outcome,
    State,
    Write,
    is_remembered,
    judge,
    lowered,
    raised,
)
from harness.resource.store import LOG_PAGE, Found, LogRow, Retention, StoreError, Written, log_row

LOG_ROWS = 200_000
"""Kept unless told otherwise: about 500 bytes each."""

_DECIDED = LogRow._fields.index("decided")


class MemoryStore:
    """A dictionary. Each operation is one step of the event loop, hence atomic."""

    def __init__(self, fencing: Fencing, *, log: bool, retention: Retention) -> None:
        self._fencing = fencing
        self._most_age = int(retention.age * 1e9)
        self._keys: dict[str, tuple[State, bytes | None]] = {}
        # Plain tuples: the garbage collector stops looking at them, unlike at named ones.
        self._log: deque[tuple[Any, ...]] | None = deque(maxlen=retention.rows or LOG_ROWS) if log else None
        self._decided = 0

    async def write(self, write: Write) -> Written:
        before, _ = self._keys.get(write.key, _NEVER_WRITTEN)
        outcome, after = judge(self._fencing, before, write)
        if outcome is Outcome.ACCEPTED:
            self._keys[write.key] = after, write.body
        certain = outcome is not Outcome.STALE or is_remembered(before, write)
        written = Written(outcome, before.mark, after.version, certain)
        if self._log is not None:
            self._decided += 1
            self._log.append(tuple(log_row(self._decided, write, written)))
            oldest = now() - self._most_age
            while len(self._log) > 1 and self._log[0][_DECIDED] < oldest:
                self._log.popleft()
        return written

    async def read(self, key: str, token: int) -> Found:
        state, body = self._keys.get(key, _NEVER_WRITTEN)
        if token and self._fencing is Fencing.ON:
            mark = raised(state.mark, token, READ)
            if mark is None:
                return Found(stale=True, mark=state.mark)
            state = state._replace(mark=mark)
            self._keys[key] = state, body
        return Found(False, state.mark, state.token, state.seq, state.version, body)

    async def lower(self, key: str, token: int) -> Mark:
        state, body = self._keys.get(key, _NEVER_WRITTEN)
        self._keys[key] = state._replace(mark=lowered(state.mark, token)), body
        return state.mark

    async def log(self, after: int) -> AsyncIterator[list[LogRow]]:
        while self._log:
            skipped = max(0, after + 1 - self._log[0][0])
            page = [LogRow(*row) for row in islice(self._log, skipped, skipped + LOG_PAGE)]
            if not page:
                return
            yield page
            after = page[-1].seq

    async def log_from(self) -> int:
        return self._log[0][0] if self._log else self._decided + 1

    async def check(self) -> None:
        """Always well."""

    async def aclose(self) -> None:
        """Nothing to close."""


_NEVER_WRITTEN: tuple[State, bytes | None] = (State(), None)


async def open_store(rest: str, fencing: Fencing, *, log: bool, retention: Retention) -> MemoryStore:
    """:raises StoreError: `rest`, what followed the word `memory`, is not empty."""
    if rest:
        raise StoreError(f"'memory:{rest}' is no store: 'memory' takes no path")
    return MemoryStore(fencing, log=log, retention=retention)
