"""What postgres:// keeps on its server, seen by a connection of the test's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg


@asynccontextmanager
async def database(url: str) -> AsyncIterator[Any]:
    """A connection to the database of a lock URL, also through a pooler."""
    connection = await asyncpg.connect(url.partition("?")[0], statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


async def claims(url: str, key: str) -> list[str]:
    """Who holds the lock, then who waits for it."""
    async with database(url) as connection:
        if await connection.fetchval("SELECT to_regclass('asyncdlock.holders')") is None:
            return []
        question = """
            SELECT owner FROM asyncdlock.locks
                WHERE key = $1 AND owner <> 'asyncdlock:shared' AND expires_at > clock_timestamp()
            UNION ALL (SELECT owner FROM asyncdlock.holders WHERE key = $1 ORDER BY fence)
            UNION ALL (SELECT owner FROM asyncdlock.waiters WHERE key = $1 ORDER BY place)
        """
        return [row["owner"] for row in await connection.fetch(question, key)]
