"""What is measured on PostgreSQL: our backend, sqlalchemy-dlock, and a plain advisory lock."""

import asyncio
from typing import Any

import asyncpg

from bench.subject import Lock, Subject
from bench.subjects import Ours

CONTENDERS = 200


class Postgres(Ours):
    name = "asyncdlock"
    scheme = "postgres"


class StrictOrder(Postgres):
    name = "asyncdlock, each grant by the server"
    query = "?local_handoffs=0"


class Commits(Subject):
    """No lock: as many sections as one connection can write down durably, one after the other."""

    name = "limit: one durable UPDATE for each"

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self.url)
        await self._connection.execute("CREATE TABLE hot (number bigint); INSERT INTO hot VALUES (0)")
        self._update = await self._connection.prepare("UPDATE hot SET number = number + 1")
        self._turn = asyncio.Lock()

    def lock(self, key: str) -> Lock:
        return self

    fence = None

    async def acquire(self) -> None:
        await self._turn.acquire()
        await self._update.fetch()

    async def release(self, _: Any) -> None:
        self._turn.release()


class Advisory(Subject):
    """`pg_advisory_lock` on a connection for each contender: what people write by hand."""

    name = "advisory lock"

    async def open(self) -> None:
        """Contenders connect by themselves."""

    def lock(self, key: str) -> Lock:
        return _AdvisoryLock(self.url, key)


class _AdvisoryLock:
    fence = None

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key
        self._connection: Any = None

    async def acquire(self) -> None:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._url)
        await self._connection.fetchval("SELECT pg_advisory_lock(hashtextextended($1, 0))", self._key)

    async def release(self, _: Any) -> None:
        await self._connection.fetchval("SELECT pg_advisory_unlock(hashtextextended($1, 0))", self._key)


class SqlalchemyDlock(Subject):
    name = "sqlalchemy-dlock"

    async def open(self) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        address = self.url.partition("://")[2]
        self._engine = create_async_engine(f"postgresql+asyncpg://{address}", pool_size=self.contenders)

    def lock(self, key: str) -> Lock:
        return _DlockLock(self._engine, key)


class _DlockLock:
    fence = None

    def __init__(self, engine: Any, key: str) -> None:
        self._engine = engine
        self._key = key
        self._lock: Any = None

    async def acquire(self) -> Any:
        if self._lock is None:
            from sqlalchemy_dlock.factory import create_async_sadlock

            self._lock = create_async_sadlock(await self._engine.connect(), self._key)
        return await self._lock.acquire()

    async def release(self, _: Any) -> None:
        await self._lock.release()


LOCKS: tuple[type[Subject], ...] = (Postgres, StrictOrder, Advisory, SqlalchemyDlock)
LIMITS: tuple[type[Subject], ...] = (Commits,)
ALL = LOCKS + LIMITS
