"""postgres:// when the primary dies and its standby is promoted."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from asyncdlock import connect
from harness import servers
from harness.servers import PostgresNode
from tests.backends.postgres_probe import claims, database
from tests.backends.support import until

pytestmark = pytest.mark.faults


class Standby(PostgresNode):
    """A copy of a primary, which it follows under the name `standby`."""

    def __init__(self, primary: PostgresNode) -> None:
        super().__init__()
        self._primary = primary

    def _make_database(self) -> None:
        command = [
            *self._as_other_user,
            str(self.binary.resolve().with_name("pg_basebackup")),
            "-D",
            str(self.data),
        ]
        command += ["-d", f"{self._primary.url}?application_name=standby", "-R", "-c", "fast", "-X", "stream"]
        self.data.rmdir()
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder)


@asynccontextmanager
async def replicated() -> AsyncIterator[tuple[PostgresNode, Standby]]:
    """A primary that waits for its standby before it answers."""
    async with servers.postgres() as primary, servers.running(lambda: Standby(primary)) as standby:
        async with database(primary.url) as connection:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            await connection.execute("SELECT pg_reload_conf()")

            async def in_step() -> bool:
                state = (
                    "SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = 'standby'"
                )
                return bool(await connection.fetchval(state))

            await until(in_step, "the standby follows")
        yield primary, standby


async def test_a_synchronous_standby_knows_every_grant_when_it_is_promoted(key: str) -> None:
    async with replicated() as (primary, standby):
        url = f"postgres://postgres@{standby.address},{primary.address}/postgres"
        async with connect(url) as one, connect(url) as two:
            before = await one.acquire(key, ttl=60.0)
            waiting = asyncio.create_task(two.acquire(key, ttl=60.0))
            await until(lambda: _claimed(primary.url, key, 2), "it waits")
            primary.kill()
            async with database(standby.url) as connection:
                assert await connection.fetchval("SELECT pg_promote()")
                await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                await connection.execute("SELECT pg_reload_conf()")
            await before.renew()
            assert not waiting.done()
            assert (await claims(standby.url, key))[0] == before.owner
            assert await before.release() is True
            async with asyncio.timeout(30.0):
                after = await waiting
            assert after.fence > before.fence
            assert await after.release() is True


async def _claimed(url: str, key: str, places: int) -> bool:
    return len(await claims(url, key)) == places
