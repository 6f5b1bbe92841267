"""Accidents with psql."""

import asyncpg

from harness.faults.accidents.accident import Accident, Site


async def _run(site: Site, statement: str, *arguments: str) -> None:
    connection = await asyncpg.connect(site.url.partition("?")[0])
    try:
        await connection.execute(statement, *arguments)
    finally:
        await connection.close()


async def _terminate(site: Site) -> None:
    await _run(
        site,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )


async def _delete(site: Site) -> None:
    await _run(site, "DELETE FROM asyncdlock.locks WHERE key = $1", site.key)


async def _truncate(site: Site) -> None:
    await _run(site, "TRUNCATE asyncdlock.locks, asyncdlock.holders, asyncdlock.waiters")


ALL = (
    Accident("postgres: sessions terminated", _terminate),
    Accident("postgres: lock's row deleted", _delete, frees="one", forgets="one"),
    Accident("postgres: tables truncated", _truncate, frees="all", forgets="all"),
)
