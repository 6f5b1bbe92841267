"""Where an HTTP service keeps the highest fence it has seen, and how it lets one writer in at a time.

A check before the write is no guard: between the two a newer holder may come and go. So a request is
*admitted*, and for as long as it is, no other request for that key runs. A store that several processes share
must see to that itself, as `PostgresMarks` does with a row lock.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from asyncdlock.errors import StaleFence
from asyncdlock.fencing._check import check_fence

ADMITTED: ContextVar[Any] = ContextVar("asyncdlock_admitted")
"""What `Marks.admit` yielded for the request that is being served: with `PostgresMarks`, the connection."""


class Marks(Protocol):
    """The highest fence of each key."""

    def admit(self, key: str, fence: int) -> AbstractAsyncContextManager[Any]:
        """Run the body while nobody else is admitted for `key`; what it yields becomes `ADMITTED`.

        :raises StaleFence: a later holder was admitted before.
        """
        ...


class MemoryMarks:
    """Marks in this process, for a service that runs as one process and keeps its data there too.

    After a restart they start anew: an old holder is then admitted once more. Keep marks where the data is.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def admit(self, key: str, fence: int) -> AsyncIterator[None]:
        """:raises StaleFence: a later holder was admitted before."""
        check_fence(fence)
        turn = self._turns.setdefault(key, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                seen = self._highest.get(key, 0)
                if fence < seen:
                    raise StaleFence(key, seen=seen, got=fence)
                self._highest[key] = fence
                yield None
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[key]


class _Turn:
    """Requests of one key, one after the other."""

    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class PostgresMarks:
    """Marks in PostgreSQL: the endpoint gets a connection inside the transaction that the guard began.

    What it writes through that connection commits together with the mark, or not at all. Any number of
    processes may share them. `pool` is asyncpg's.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def admit(self, key: str, fence: int) -> AsyncIterator[Any]:
        """:raises StaleFence: a later holder was admitted before."""
        from asyncdlock.fencing.postgres import guard

        async with self._pool.acquire() as connection, connection.transaction():
            await guard(connection, key, fence)
            yield connection
