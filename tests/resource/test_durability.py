"""Whatever the resource has answered is still true after kill -9, at any moment, under load."""

import asyncio
import random
import resource as limits
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from harness import resource
from harness.resource import ResourceProcess
from harness.resource.client import ResourceClient, Unanswered
from tests.resource.conftest import store_url

KEYS = 8
WRITERS = 24
ROUNDS = 3
ANSWERS_PER_ROUND = 400


class Promises:
    """All that a resource has answered."""

    def __init__(self) -> None:
        self.accepted: dict[str, dict[int, bytes]] = {}
        self.refused: set[tuple[str, int]] = set()
        self.marks: dict[str, int] = {}
        self.answers = 0

    async def provoke(self, client: ResourceClient, chance: random.Random, tokens: "Tokens") -> None:
        """Write, fenced or stale, and read with a fence, until the connection fails."""
        while True:
            key = f"key-{chance.randrange(KEYS)}"
            token = tokens.near_the_top(key, chance)
            if chance.random() < 0.2:
                read = await client.get(key, fence=token)
                if read.status != 409:
                    self.marks[key] = max(self.marks.get(key, 0), token)
            else:
                body = b"%s by %d, %d" % (key.encode(), token, chance.randrange(10**9))
                written = await client.put(key, body, fence=token)
                if written.status == 200:
                    assert token not in self.accepted.setdefault(key, {}), "accepted twice"
                    self.accepted[key][token] = body
                elif not written.status:
                    raise Unanswered(written.error)
                else:
                    assert written.status == 409
                    self.refused.add((key, token))
            self.answers += 1

    async def verify(self, client: ResourceClient) -> None:
        rows = await client.log()
        logged = {(row["key"], row["token"]) for row in rows if row["accepted"]}
        for key, writes in self.accepted.items():
            newest = max(writes)
            assert logged >= {(key, token) for token in writes}, "an acknowledged write is not in the log"
            value = await client.get(key)
            assert int(value.headers["X-Fence-Token"]) >= newest, "an acknowledged write was lost"
            if int(value.headers["X-Fence-Token"]) == newest:
                assert value.body == writes[newest]
            assert int(value.headers["X-Max-Fence"]) >= self.marks.get(key, 0), "a read's mark was lost"
        stale = {(key, max(writes)) for key, writes in self.accepted.items()} | self.refused
        stale |= {(key, mark - 1) for key, mark in self.marks.items() if mark > 1}
        answers = await asyncio.gather(*(client.put(key, b"stale", fence=token) for key, token in stale))
        assert {answer.status for answer in answers} == {409}, "a token was accepted again"


class Tokens:
    """Rising tokens per key, handed out with some old ones among them."""

    def __init__(self) -> None:
        self._top: dict[str, int] = {}

    def near_the_top(self, key: str, chance: random.Random) -> int:
        top = self._top[key] = self._top.get(key, 0) + 1
        return max(1, top - chance.choice([0, 0, 0, 0, 1, 5]))


@pytest.fixture(params=["sqlite", "sqlite-full", "postgres"])
def durable_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request.param, tmp_path, request)


@pytest.fixture
async def durable(durable_store: str) -> AsyncIterator[ResourceProcess]:
    async with resource.spawn(store=durable_store) as node:
        yield node


@pytest.mark.faults
async def test_what_was_answered_under_load_holds_after_kill_9(durable: ResourceProcess) -> None:
    """No acknowledged write is lost, no refused token is accepted, no mark of a read is forgotten."""
    chance = random.Random(5)
    promises, tokens = Promises(), Tokens()
    for _ in range(ROUNDS):
        goal = promises.answers + ANSWERS_PER_ROUND
        async with ResourceClient(durable.url) as client:
            writers = [
                asyncio.create_task(promises.provoke(client, random.Random(chance.random()), tokens))
                for _ in range(WRITERS)
            ]
            async with asyncio.timeout(120):
                while promises.answers < goal and not any(writer.done() for writer in writers):
                    await asyncio.sleep(0.001)
            durable.kill()
            for outcome in await asyncio.gather(*writers, return_exceptions=True):
                assert isinstance(outcome, Unanswered), outcome
        await durable.restart()
        async with ResourceClient(durable.url) as client:
            await promises.verify(client)
    assert promises.accepted and promises.refused and promises.marks


@pytest.mark.faults
async def test_a_graceful_stop_under_load_keeps_every_answer(durable: ResourceProcess) -> None:
    promises, tokens = Promises(), Tokens()
    async with ResourceClient(durable.url) as client:
        writers = [
            asyncio.create_task(promises.provoke(client, random.Random(number), tokens))
            for number in range(WRITERS)
        ]
        async with asyncio.timeout(120):
            while promises.answers < ANSWERS_PER_ROUND:
                await asyncio.sleep(0.001)
        await durable.stop()
        await asyncio.gather(*writers, return_exceptions=True)
    assert "Traceback" not in durable.log_tail(1000)
    await durable.restart()
    async with ResourceClient(durable.url) as client:
        await promises.verify(client)


async def test_a_restart_with_another_mode_keeps_the_marks(tmp_path: Path) -> None:
    """What ran unfenced is fenced above every token that it has seen, not only the last one."""
    store = f"sqlite:{tmp_path / 'resource.db'}"
    async with resource.spawn(store=store, fence="off") as node, ResourceClient(node.url) as client:
        await client.put("key", b"new", fence=34)
        await client.put("key", b"old", fence=33)
    async with resource.spawn(store=store) as node, ResourceClient(node.url) as client:
        assert (await client.put("key", b"again", fence=34)).json["seen"] == 34
        assert (await client.put("key", b"newer", fence=35)).json == {"version": 3}


@pytest.mark.faults
async def test_a_full_disk_is_a_503_that_stores_nothing_and_passes() -> None:
    """Writes that do not fit fail as a whole: the mark does not rise without its value."""
    async with resource.spawn() as node, ResourceClient(node.url) as client:
        assert (await client.put("key", b"before", fence=1)).status == 200
        _, hard = limits.prlimit(node.pid, limits.RLIMIT_FSIZE)
        wal = (node.data / "resource.db-wal").stat().st_size
        limits.prlimit(node.pid, limits.RLIMIT_FSIZE, (wal, hard))
        refused = await client.put("key", b"x" * 100_000, fence=2)
        assert refused.status == 503
        assert refused.json["error"].startswith("the SQLite store failed: ")
        assert (await client.get("key")).body == b"before"
        assert await client.metric('resource_writes_total{outcome="failed"}') == 1
        limits.prlimit(node.pid, limits.RLIMIT_FSIZE, (hard, hard))
        assert (await client.put("key", b"after", fence=2)).status == 200
        assert [row["token"] for row in await client.log()] == [1, 2]


async def test_the_log_of_changes_is_folded_into_the_database() -> None:
    """The write-ahead log starts over again and again instead of growing with every write."""
    async with resource.spawn() as node, ResourceClient(node.url) as client:
        for _ in range(4):
            await asyncio.gather(*(client.put(f"key-{n}", b"x" * 500_000, fence=1) for n in range(24)))
        written = 24 * 500_000
        assert (node.data / "resource.db").stat().st_size > written / 2
        for token in range(2, 6):
            await asyncio.gather(*(client.put(f"key-{n}", b"x" * 500_000, fence=token) for n in range(24)))
        assert (node.data / "resource.db-wal").stat().st_size < 4 * written


async def test_connections_that_the_database_ends_are_replaced(postgres_dsn: str, key: str) -> None:
    dsn = f"{postgres_dsn}&application_name={key}"
    async with resource.spawn(store=f"postgres:{dsn}") as node, ResourceClient(node.url) as client:
        assert (await client.put(key, b"v", fence=1)).status == 200
        administrator = await asyncpg.connect(postgres_dsn)
        ended = await administrator.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", key
        )
        await administrator.close()
        assert ended
        async with asyncio.timeout(60):
            while (await client.get(key)).status != 200:
                await asyncio.sleep(0.01)
        assert (await client.put(key, b"w", fence=2)).status == 200
        assert "Traceback" not in node.log_tail(1000)
