"""The store that forgets: everything in this process, nothing on disk."""

from collections.abc import AsyncIterator

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
from harness.resource.recent_log import RecentLog
from harness.resource.store import Found, LogRow, Retention, StoreError, Written


class MemoryStore:
    """A dictionary. Each operation is one step of the event loop, hence atomic."""

    def __init__(self, fencing: Fencing, *, log: bool, retention: Retention) -> None:
        self._fencing = fencing
        self._keys: dict[str, tuple[State, bytes | None]] = {}
        self._log = RecentLog(retention) if log else None

    async def write(self, write: Write) -> Written:
        before, _ = self._keys.get(write.key, _NEVER_WRITTEN)
        outcome, after = judge(self._fencing, before, write)
        if outcome is Outcome.ACCEPTED:
            self._keys[write.key] = after, write.body
        certain = outcome is not Outcome.STALE or is_remembered(before, write)
        written = Written(outcome, before.mark, after.version, certain)
        if self._log is not None:
            self._log.append(write, written)
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
        if self._log is not None:
            for page in self._log.pages(after):
                yield page

    async def log_from(self) -> int:
        return 1 if self._log is None else self._log.begins

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
