"""A row that fences itself: the comparison is the WHERE clause of the statement that writes.

Any number of resources may share the table, since no process decides: the row does, under its own
lock. `WHERE (token, seq) > (mark_token, mark_seq)` compares pairs as `decision.raised` does.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from asyncdlock.backend import redact
from harness.resource.decision import READ, Fencing, Mark, Outcome, State, Write, judge
from harness.resource.store import LOG_PAGE, Found, LogRow, StoreError, Written, log_row

_SCHEMA = """
CREATE TABLE IF NOT EXISTS resource (
    key        text PRIMARY KEY,
    mark_token bigint NOT NULL,
    mark_seq   bigint NOT NULL,
    token      bigint NOT NULL,
    seq        bigint NOT NULL,
    version    bigint NOT NULL,
    digest     text NOT NULL,
    body       bytea,
    -- The mark before the last accepted write: RETURNING knows no OLD before PostgreSQL 18.
    prior_token bigint NOT NULL DEFAULT 0,
    prior_seq   bigint NOT NULL DEFAULT -1
);
CREATE TABLE IF NOT EXISTS resource_log (
    seq       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key       text NOT NULL,
    token     bigint NOT NULL,
    fence_seq bigint NOT NULL,
    outcome   text NOT NULL,
    seen      bigint NOT NULL,
    version   bigint NOT NULL,
    started   bigint NOT NULL,
    decided   bigint NOT NULL,
    owner     text,
    digest    text NOT NULL
);
"""
# `$7` tells whether tokens are enforced. A key that was never written must also refuse a write
# that expects a version; one that exists meets the conflict, which locks the row and then decides.
_WRITE = """
INSERT INTO resource AS r (key, mark_token, mark_seq, token, seq, version, digest, body)
SELECT $1, $2, $3, $2, $3, 1, $4, $5
WHERE coalesce($6::bigint, 0) = 0 OR EXISTS (SELECT FROM resource WHERE key = $1)
ON CONFLICT (key) DO UPDATE SET
    prior_token = r.mark_token, prior_seq = r.mark_seq,
    mark_token = greatest(r.mark_token, excluded.mark_token),
    mark_seq = CASE WHEN (excluded.mark_token, excluded.mark_seq) > (r.mark_token, r.mark_seq)
                    THEN excluded.mark_seq ELSE r.mark_seq END,
    token = excluded.token, seq = excluded.seq, version = r.version + 1,
    digest = excluded.digest, body = excluded.body
WHERE (NOT $7::boolean OR (excluded.token, excluded.seq) > (r.mark_token, r.mark_seq))
    AND ($6 IS NULL OR r.version = $6)
RETURNING prior_token, prior_seq, version
"""
_STATE = "SELECT mark_token, mark_seq, token, seq, version, digest FROM resource WHERE key = $1"
_APPEND = """
INSERT INTO resource_log
    (key, token, fence_seq, outcome, seen, version, started, decided, owner, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_VALUE = "SELECT mark_token, mark_seq, token, seq, version, body FROM resource WHERE key = $1"
_FENCED_VALUE = """
INSERT INTO resource AS r (key, mark_token, mark_seq, token, seq, version, digest)
VALUES ($1, $2, $3, 0, 0, 0, '')
ON CONFLICT (key) DO UPDATE SET
    mark_token = excluded.mark_token,
    mark_seq = CASE WHEN excluded.mark_token > r.mark_token THEN excluded.mark_seq ELSE r.mark_seq END
WHERE excluded.mark_token >= r.mark_token
RETURNING mark_token, mark_seq, token, seq, version, body
"""
_PAGE = "SELECT * FROM resource_log WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3"

_MOST_CONNECTIONS = 16


class PostgresStore:
    """Each operation is one transaction."""

    def __init__(self, pool: Any, fencing: Fencing, *, log: bool) -> None:
        self._pool = pool
        self._fencing = fencing
        self._keep_log = log

    async def write(self, write: Write) -> Written:
        enforced = self._fencing is not Fencing.OFF
        async with self._transaction() as connection:
            accepted = await connection.fetchrow(
                _WRITE,
                write.key,
                write.token,
                write.seq,
                write.digest,
                write.body,
                write.expected,
                enforced,
            )
            if accepted is not None:
                before = Mark(*accepted[:2])
                written = Written(Outcome.ACCEPTED, before, accepted["version"])
            else:
                written = _refusal(self._fencing, await connection.fetchrow(_STATE, write.key), write)
            if self._keep_log:
                await connection.execute(_APPEND, *log_row(0, write, written)[1:])
        return written

    async def read(self, key: str, token: int) -> Found:
        async with self._transaction() as connection:
            if not token or self._fencing is not Fencing.ON:
                return _found(await connection.fetchrow(_VALUE, key))
            row = await connection.fetchrow(_FENCED_VALUE, key, token, READ)
            if row is not None:
                return _found(row)
            return Found(stale=True, mark=_found(await connection.fetchrow(_VALUE, key)).mark)

    async def log(self, after: int) -> AsyncIterator[list[LogRow]]:
        async with self._transaction() as connection:
            # Waits for the writes in flight: their rows may have smaller numbers than visible ones.
            await connection.execute("LOCK TABLE resource_log IN SHARE MODE")
            last = await connection.fetchval("SELECT coalesce(max(seq), 0) FROM resource_log")
        while after < last:
            async with self._transaction() as connection:
                rows = await connection.fetch(_PAGE, after, last, LOG_PAGE)
            page = [LogRow(*row) for row in rows]
            yield page
            after = page[-1].seq

    async def check(self) -> None:
        async with self._transaction() as connection:
            await connection.execute("SELECT")

    async def aclose(self) -> None:
        await self._pool.close()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection
        except _FAILURES as error:
            raise StoreError(f"the PostgreSQL store failed: {error}") from error


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
    return Written(outcome, state.mark, state.version)


def _found(row: Any) -> Found:
    return Found(False, Mark()) if row is None else Found(False, Mark(*row[:2]), *row[2:])


async def open_store(rest: str, fencing: Fencing, *, log: bool) -> PostgresStore:
    """:raises StoreError: `rest` is no DSN, or the server or database cannot be used."""
    dsn = f"postgres:{rest}" if rest.startswith("//") else rest
    try:
        pool = await asyncpg.create_pool(dsn, min_size=1, max_size=_MOST_CONNECTIONS, command_timeout=30)
        async with pool.acquire() as connection:
            await connection.execute(_SCHEMA)
    except (*_FAILURES, ValueError) as error:
        raise StoreError(f"cannot open the PostgreSQL store {redact(dsn)!r}: {error}") from error
    return PostgresStore(pool, fencing, log=log)
