"""A row that fences itself: the comparison is the WHERE clause of the statement that writes.

Any number of resources may share the table, since no process decides: the row does, under its own
lock. `WHERE (token, seq) > (mark_token, mark_seq)` compares pairs as `decision.raised` does.

Durability does not depend on how the server is set up: every session commits synchronously, and a server
that skips `fsync` or full-page writes, or keeps the table unlogged, is refused.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from asyncdlock.backend import redact
from harness.resource import postgres_sql as sql
from harness.resource.decision import (
    READ,
    RECENT_BYTES,
    Fencing,
    Mark,
    Outcome,
    State,
    Write,
    entry,
    is_remembered,
    judge,
)
from harness.resource.store import LOG_PAGE, LOG_ROWS, Found, LogRow, Retention, StoreError, Written, log_row

_MOST_CONNECTIONS = 16
# A server that does not answer costs a client at most the sum of these.
_CONNECTION_WITHIN = 5.0
_TRANSACTION_WITHIN = 10.0
_SESSION = {
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "statement_timeout": f"{_TRANSACTION_WITHIN:.0f}s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
}
_NEEDED = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "relpersistence": "p"}
_SCHEMA_LOCK = 0x41444C52  # of ours alone among the advisory locks of the database
_DROP_EVERY = 1024
_DROP_AT_MOST = 4 * _DROP_EVERY

logger = logging.getLogger(__name__)


class PostgresStore:
    """Each operation is one transaction."""

    def __init__(self, pool: Any, fencing: Fencing, *, log: bool, retention: Retention) -> None:
        self._pool = pool
        self._fencing = fencing
        self._keep_log = log
        self._retention = retention
        self._since_drop = _DROP_EVERY
        self._dropping: asyncio.Task[None] | None = None

    async def write(self, write: Write) -> Written:
        enforced = self._fencing is not Fencing.OFF
        async with self._transaction() as connection:
            accepted = await connection.fetchrow(
                sql.WRITE,
                write.key,
                write.token,
                write.seq,
                write.digest,
                write.body,
                write.expected,
                enforced,
                entry(write),
                RECENT_BYTES,
            )
            if accepted is not None:
                before = Mark(*accepted[:2])
                written = Written(Outcome.ACCEPTED, before, accepted["version"])
            else:
                written = _refusal(self._fencing, await connection.fetchrow(sql.STATE, write.key), write)
            if self._keep_log:
                await connection.execute(sql.APPEND, *log_row(0, write, written)[1:])
        if self._keep_log:
            self._count_row()
        return written

    async def read(self, key: str, token: int) -> Found:
        async with self._transaction() as connection:
            if not token or self._fencing is not Fencing.ON:
                return _found(await connection.fetchrow(sql.VALUE, key))
            row = await connection.fetchrow(sql.FENCED_VALUE, key, token, READ)
            if row is not None:
                return _found(row)
            return Found(stale=True, mark=_found(await connection.fetchrow(sql.VALUE, key)).mark)

    async def lower(self, key: str, token: int) -> Mark:
        async with self._transaction() as connection:
            before = await connection.fetchrow(sql.LOWER, key, token, READ)
            return Mark(*before) if before else _found(await connection.fetchrow(sql.VALUE, key)).mark

    async def log(self, after: int) -> AsyncIterator[list[LogRow]]:
        async with self._transaction() as connection:
            # Waits for the writes in flight: their rows may have smaller numbers than visible ones.
            await connection.execute("LOCK TABLE resource_log IN SHARE MODE")
            last = await connection.fetchval("SELECT coalesce(max(seq), 0) FROM resource_log")
        while after < last:
            async with self._transaction() as connection:
                rows = await connection.fetch(sql.PAGE, after, last, LOG_PAGE)
            if not rows:  # dropped meanwhile
                return
            page = [LogRow(*row) for row in rows]
            yield page
            after = page[-1].seq

    async def log_from(self) -> int:
        async with self._transaction() as connection:
            dropped: int = await connection.fetchval(sql.DROPPED)
        return dropped + 1

    async def check(self) -> None:
        async with self._transaction() as connection:
            await _check_settings(connection)
            await connection.execute(sql.CHECK)

    async def aclose(self) -> None:
        if self._dropping is not None:
            await self._dropping
        try:
            async with asyncio.timeout(_CONNECTION_WITHIN):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        """Commits at the end. After any failure the connection is given up: the server rolls back by itself.

        To roll back, or to cancel a statement, would mean to wait once more for a server that may be frozen.
        """
        try:
            connection = await self._pool.acquire(timeout=_CONNECTION_WITHIN)
            try:
                async with asyncio.timeout(_TRANSACTION_WITHIN):
                    await connection.execute("BEGIN")
                    yield connection
                    await connection.execute("COMMIT")
            except BaseException:
                connection.terminate()
                raise
            finally:
                await self._pool.release(connection, timeout=_CONNECTION_WITHIN)
        except TimeoutError as error:
            raise StoreError("the PostgreSQL store failed: it does not answer in time") from error
        except _FAILURES as error:
            raise StoreError(f"the PostgreSQL store failed: {error}") from error

    def _count_row(self) -> None:
        self._since_drop += 1
        if self._since_drop >= _DROP_EVERY and (self._dropping is None or self._dropping.done()):
            self._since_drop = 0
            self._dropping = asyncio.create_task(self._drop_old_rows())

    async def _drop_old_rows(self) -> None:
        try:
            async with self._transaction() as connection:
                last = await connection.fetchval(
                    sql.LAST_TO_DROP, self._retention.rows or LOG_ROWS, self._retention.age, _DROP_AT_MOST
                )
                if last is not None:
                    await connection.execute(sql.DROPPED_TO, last)
                    await connection.execute(sql.DROP, last)
        except StoreError as failure:
            logger.warning("old rows of the log stay for now: %s", failure)


_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that ends while a transaction is being rolled back
    OSError,
    TimeoutError,
)


def _refusal(fencing: Fencing, row: Any, write: Write) -> Written:
    """Why the statement refused the write: the row, locked by then, still says so."""
    state = State() if row is None else State(Mark(*row[:2]), *row[2:])
    outcome, _ = judge(fencing, state, write)
    if outcome is Outcome.ACCEPTED:
        # The key was new and without a row to lock, the write expected a version, and another
        # write has brought the key there since. Refused is refused.
        outcome = Outcome.CONFLICT
    certain = outcome is not Outcome.STALE or is_remembered(state, write)
    return Written(outcome, state.mark, state.version, certain)


def _found(row: Any) -> Found:
    return Found(False, Mark()) if row is None else Found(False, Mark(*row[:2]), *row[2:])


async def _check_settings(connection: Any) -> None:
    """:raises StoreError: what is acknowledged under these settings could be lost."""
    for name, value in await connection.fetch(sql.SETTINGS):
        if value == _NEEDED[name]:
            continue
        if name == "relpersistence":
            raise StoreError("the PostgreSQL store failed: its table is unlogged, hence lost in a crash")
        raise StoreError(
            f"the PostgreSQL store failed: its server has {name} {value}, and would lose in a crash what it "
            "has acknowledged"
        )


async def open_store(rest: str, fencing: Fencing, *, log: bool, retention: Retention) -> PostgresStore:
    """:raises StoreError: `rest` is no DSN, or the server or database cannot be used."""
    dsn = f"postgres:{rest}" if rest.startswith("//") else rest
    pool = None
    try:
        async with asyncio.timeout(_TRANSACTION_WITHIN):
            pool = await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=_MOST_CONNECTIONS,
                timeout=_CONNECTION_WITHIN,
                server_settings=_SESSION,
            )
            async with pool.acquire() as connection, connection.transaction():
                # Two resources that start together would both find no table.
                await connection.execute(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
                await connection.execute(sql.SCHEMA)
                await _check_settings(connection)
    except (*_FAILURES, ValueError, StoreError) as error:
        if pool is not None:
            pool.terminate()
        reason = str(error) or "it does not answer in time"
        raise StoreError(f"cannot open the PostgreSQL store {redact(dsn)!r}: {reason}") from error
    return PostgresStore(pool, fencing, log=log, retention=retention)
