"""The PostgreSQL store promises the same whatever the server's settings are, and never waits for ever."""

import asyncio
import subprocess
import sys

import asyncpg
import pytest

from harness import resource, servers
from harness.resource.client import ResourceClient


@pytest.mark.faults
@pytest.mark.slow
async def test_acknowledged_marks_survive_a_server_that_commits_asynchronously() -> None:
    """The server would let commits wait ten seconds for the disk; the store does not."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s"}
    async with servers.postgres(settings=settings) as server:
        async with (
            resource.spawn(store=f"postgres:{server.url}") as node,
            ResourceClient(node.url) as client,
        ):
            for token in range(1, 101):
                assert (await client.put("key", b"v", fence=token)).status == 200
            assert (await client.get("other", fence=7)).status == 404
            server.kill()
            await server.start()
            async with asyncio.timeout(60):
                while (found := await client.get("key")).status != 200:
                    await asyncio.sleep(0.05)
            assert found.headers["X-Max-Fence"] == "100"
            assert (await client.get("other")).headers["X-Max-Fence"] == "7"


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_may_lose_what_it_acknowledged_is_refused(setting: str) -> None:
    async with servers.postgres(settings={setting: "off"}) as server:
        assert f"its server has {setting} off" in await _refusal(server.url)


async def test_an_unlogged_table_is_refused(postgres_dsn: str) -> None:
    admin = await asyncpg.connect(postgres_dsn)
    try:
        await admin.execute("CREATE SCHEMA unlogged")
        async with resource.spawn(store=f"postgres:{_in_schema(postgres_dsn, 'unlogged')}"):
            pass
        await admin.execute("ALTER TABLE unlogged.resource SET UNLOGGED")
        assert "unlogged" in await _refusal(_in_schema(postgres_dsn, "unlogged"))
    finally:
        await admin.execute("DROP SCHEMA unlogged CASCADE")
        await admin.close()


async def test_a_setting_that_is_changed_later_makes_the_resource_unhealthy() -> None:
    async with servers.postgres() as server:
        async with (
            resource.spawn(store=f"postgres:{server.url}") as node,
            ResourceClient(node.url) as client,
        ):
            assert (await client.send("GET", "/healthz")).status == 200
            admin = await asyncpg.connect(server.url)
            await admin.execute("ALTER SYSTEM SET fsync = off")
            await admin.execute("SELECT pg_reload_conf()")
            await admin.close()
            async with asyncio.timeout(60):
                while (answer := await client.send("GET", "/healthz")).status == 200:
                    await asyncio.sleep(0.05)
            assert "fsync off" in answer.json["error"]


@pytest.mark.faults
@pytest.mark.slow
async def test_a_frozen_server_costs_a_client_seconds_and_then_all_is_well_again() -> None:
    async with servers.postgres() as server:
        async with (
            resource.spawn(store=f"postgres:{server.url}") as node,
            ResourceClient(node.url, timeout=60.0) as client,
        ):
            assert (await client.put("key", b"v", fence=1)).status == 200
            server.pause()
            async with asyncio.timeout(60):  # more than one time-out would take longer
                writes = [client.put(f"key-{number}", b"w", fence=2) for number in range(48)]
                answers = await asyncio.gather(*writes)
                assert {answer.status for answer in answers} == {503}
                assert (await client.send("GET", "/healthz")).status == 503
            server.resume()
            async with asyncio.timeout(60):
                while (await client.put("key", b"w", fence=3)).status == 503:
                    await asyncio.sleep(0.05)
            assert (await client.get("key")).body == b"w"
            assert "Traceback" not in node.log_tail(1000)


async def test_two_resources_may_start_at_once_on_an_empty_database(postgres_dsn: str) -> None:
    admin = await asyncpg.connect(postgres_dsn)
    try:
        await admin.execute("CREATE SCHEMA together")
        store = f"postgres:{_in_schema(postgres_dsn, 'together')}"
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(_start_and_write(store))
    finally:
        await admin.execute("DROP SCHEMA together CASCADE")
        await admin.close()


async def _start_and_write(store: str) -> None:
    async with resource.spawn(store=store) as node, ResourceClient(node.url) as client:
        assert (await client.put("key", b"v", fence=1)).status in (200, 409)


def _in_schema(dsn: str, schema: str) -> str:
    return f"{dsn.rpartition('search_path=')[0]}search_path={schema}"


async def _refusal(dsn: str) -> str:
    """The one sentence with which the command ends."""
    command = [sys.executable, "-m", "harness", "resource", "--listen", "127.0.0.1:0"]
    ended = await asyncio.to_thread(
        subprocess.run, [*command, "--store", f"postgres:{dsn}"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2, ended
    (sentence,) = ended.stderr.splitlines()
    return sentence
