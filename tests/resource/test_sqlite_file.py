"""What happens to the SQLite file behind the resource's back is noticed, and nobody is held up by it."""

import asyncio
import resource as limits
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path

import pytest

from harness import resource
from harness.history.rows import digest
from harness.resource import ResourceProcess
from harness.resource.client import Reply, ResourceClient
from harness.resource.decision import Fencing, Write
from harness.resource.store import StoreError, open_store


@pytest.fixture
async def node() -> AsyncIterator[ResourceProcess]:
    async with resource.spawn() as node:
        yield node


@pytest.fixture
async def client(node: ResourceProcess) -> AsyncIterator[ResourceClient]:
    async with ResourceClient(node.url) as client:
        assert (await client.put("key", b"v", fence=1)).status == 200
        yield client


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another program is in the middle of a write."""
    stranger = sqlite3.connect(database, isolation_level=None)
    try:
        stranger.execute("BEGIN IMMEDIATE")
        yield
        stranger.execute("ROLLBACK")
    finally:
        stranger.close()


async def health(client: ResourceClient) -> Reply:
    return await client.send("GET", "/healthz")


async def unhealthy(client: ResourceClient) -> Reply:
    """The first answer that says so."""
    async with asyncio.timeout(60):
        while (answer := await health(client)).status == 200:
            await asyncio.sleep(0.05)
    return answer


async def test_a_foreign_lock_delays_writes_and_nothing_else(
    node: ResourceProcess, client: ResourceClient
) -> None:
    with locked(node.data / "resource.db"):
        write = asyncio.create_task(client.put("key", b"w", fence=2))
        for _ in range(50):
            assert (await client.get("key")).body == b"v"
            assert (await client.send("GET", "/openapi.json")).status == 200
        assert not write.done()
    assert (await write).status == 200


async def test_a_write_that_meets_a_lock_for_too_long_is_a_503(
    node: ResourceProcess, client: ResourceClient
) -> None:
    with locked(node.data / "resource.db"):
        answer = await client.put("key", b"w", fence=2)
        assert (answer.status, "locked" in answer.json["error"]) == (503, True)
        assert (await client.get("key")).body == b"v"
    assert (await client.put("key", b"w", fence=2)).status == 200


async def test_health_is_bad_while_nothing_can_be_written(
    node: ResourceProcess, client: ResourceClient
) -> None:
    with locked(node.data / "resource.db"):
        assert (await health(client)).status == 503
    async with asyncio.timeout(60):
        while (await health(client)).status != 200:
            await asyncio.sleep(0.05)


@pytest.mark.faults
async def test_health_is_bad_on_a_full_disk_and_good_again_behind_it(
    node: ResourceProcess, client: ResourceClient
) -> None:
    _, hard = limits.prlimit(node.pid, limits.RLIMIT_FSIZE)
    limits.prlimit(node.pid, limits.RLIMIT_FSIZE, ((node.data / "resource.db-wal").stat().st_size, hard))
    assert (await health(client)).status == 503
    limits.prlimit(node.pid, limits.RLIMIT_FSIZE, (hard, hard))
    assert (await health(client)).status == 200


@pytest.mark.faults
@pytest.mark.parametrize("damage", ["header", "pages"])
async def test_health_is_bad_on_a_corrupt_file(
    node: ResourceProcess, client: ResourceClient, damage: str
) -> None:
    for number in range(40):
        await client.put(f"key-{number}", b"x" * 4000, fence=1)
    await node.restart()  # everything is in the database proper now
    assert (await health(client)).status == 200
    database = node.data / "resource.db"
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(0 if damage == "header" else 4096)
        file.write(b"\xa5" * (100 if damage == "header" else size - 4096))
    answer = await unhealthy(client)
    assert answer.json["error"].startswith("the SQLite store failed: ")
    assert (await client.put("key", b"w", fence=9)).status == 503, "no more promises on such a file"


@pytest.mark.faults
@pytest.mark.parametrize("name", ["resource.db", "resource.db-wal"])
@pytest.mark.parametrize("what", ["deleted", "replaced"])
async def test_a_file_that_is_gone_is_noticed_before_anything_more_is_promised(
    node: ResourceProcess, client: ResourceClient, name: str, what: str
) -> None:
    (node.data / name).unlink()
    if what == "replaced":
        (node.data / name).touch()
    answer = await client.put("key", b"w", fence=2)
    assert answer.status == 503
    assert f"{name} was {what}" in answer.json["error"]
    assert (await health(client)).status == 503
    assert (await client.put("key", b"w", fence=3)).status == 503


async def test_a_batch_promises_nothing_on_a_file_that_is_gone(tmp_path: Path) -> None:
    """With `sync=full` every write is part of one."""
    path = tmp_path / "r.db"
    store = await open_store(f"sqlite:{path}?sync=full", Fencing.ON, log=True)
    async with aclosing(store):
        assert (await store.write(_write("key", 1))).version == 1
        path.unlink()
        with pytest.raises(StoreError, match=r"r\.db was deleted"):
            await store.write(_write("key", 2))


async def test_a_file_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    """Its values have no memory of recent writes."""
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    old.executescript(
        f"PRAGMA application_id = {0x41444C52};"
        "CREATE TABLE resource (key TEXT PRIMARY KEY, mark_token INTEGER NOT NULL, mark_seq INTEGER NOT NULL,"
        " token INTEGER NOT NULL, seq INTEGER NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,"
        " body BLOB);"
        "INSERT INTO resource VALUES ('key', 7, 0, 7, 0, 3, '', x'76');"
    )
    old.close()
    async with resource.spawn(store=f"sqlite:{path}") as node, ResourceClient(node.url) as client:
        assert (await client.get("key")).body == b"v"
        assert (await client.put("key", b"w", fence=7)).status == 409
        assert (await client.put("key", b"w", fence=6)).json["yours"] is None
        assert (await client.put("key", b"w", fence=8)).json == {"version": 4}


def _write(key: str, token: int) -> Write:
    return Write(key, token, 0, b"v", digest(b"v"), started=0)


async def test_a_write_that_comes_alone_is_committed_before_anything_else_runs(tmp_path: Path) -> None:
    """Writes of a hot key come one at a time: none waits for others that will not come."""
    store = await open_store(f"sqlite:{tmp_path / 'r.db'}", Fencing.ON, log=True)
    async with aclosing(store):
        with pytest.raises(StopIteration) as ended:
            store.write(_write("key", 1)).send(None)
        assert ended.value.value.version == 1
        with closing(sqlite3.connect(tmp_path / "r.db")) as stranger:
            assert stranger.execute("SELECT version FROM resource").fetchall() == [(1,)]


async def test_writes_that_come_together_share_transactions(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:{tmp_path / 'r.db'}", Fencing.ON, log=True)
    async with aclosing(store):
        with closing(sqlite3.connect(tmp_path / "r.db")) as stranger:
            commits: set[int] = set()

            async def write(token: int) -> int:
                written = await store.write(_write("key", token))
                (seen,) = stranger.execute("SELECT max(version) FROM resource").fetchone()
                commits.add(seen)
                return written.version

            for first in (1, 101):
                answers = await asyncio.gather(*(write(first + number) for number in range(100)))
                assert answers == list(range(first, first + 100))
            # Each time the first was alone as far as anybody knew, and the others came with it.
            assert len(commits) <= 4
