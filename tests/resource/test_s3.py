"""The S3 store: the bucket decides, whoever is killed; the log says what it misses; an unfit one is out."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import pytest

from harness import resource
from harness.resource.client import LogIncomplete, ResourceClient, Unanswered
from harness.resource.decision import Fencing, Outcome, Write
from harness.resource.s3 import S3Store
from harness.resource.s3_place import Place
from harness.resource.store import Store, StoreError, open_store
from harness.servers.s3_node import s3
from tests.fencing.test_s3 import ignoring
from tests.resource.conftest import store_url
from tests.resource.test_stores import rows_of

OPERATIONS = 60


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A prefix that no other test uses."""
    return store_url("s3", tmp_path, request)


@pytest.fixture
async def store(place: str) -> AsyncIterator[Store]:
    async with aclosing(await open_store(place, Fencing.ON, log=True)) as store:
        yield store


@pytest.fixture
async def other(place: str, store: Store) -> AsyncIterator[Store]:
    """Of a second resource, started after the first."""
    async with aclosing(await open_store(place, Fencing.ON, log=True)) as store:
        yield store


@pytest.mark.parametrize("fencing", Fencing)
async def test_random_operations_get_the_answers_of_the_reference(place: str, fencing: Fencing) -> None:
    chance = random.Random(fencing.value)
    reference = await open_store("memory", fencing, log=True)
    store = await open_store(place, fencing, log=True)
    for _ in range(OPERATIONS):
        name, token = f"key-{chance.randrange(2)}", chance.randrange(1, 8)
        if chance.random() < 0.3:
            token = chance.choice([0, token])
            assert await store.read(name, token) == await reference.read(name, token)
        elif chance.random() < 0.1:
            assert await store.lower(name, token) == await reference.lower(name, token)
        else:
            body = b"%d" % chance.randrange(2)
            expected = chance.choice([None, None, None, 0, 1, 2])
            write = Write(name, token, chance.randrange(3), body, body.hex() * 16, 7, expected, "owner")
            assert await store.write(write) == await reference.write(write)
    assert await rows_of(store, prefix="key") == await rows_of(reference, prefix="key")
    assert await store.log_from() == 1
    await store.aclose()


async def test_64_writers_through_two_resources_never_let_the_value_run_backwards(place: str) -> None:
    """Neither resource knows of the other: only the bucket can refuse."""
    seen: list[int] = []
    async with (
        resource.spawn(store=place) as one,
        resource.spawn(store=place) as other,
        ResourceClient(one.url) as first,
        ResourceClient(other.url) as second,
    ):
        fences = list(range(1, 65))
        random.Random(7).shuffle(fences)

        async def write(number: int, fence: int) -> None:
            reply = await (first, second)[number % 2].put("key", b"%d" % fence, fence=fence)
            assert reply.status in (200, 409)

        async def watch() -> None:
            while not seen or seen[-1] < 64:
                found = await first.get("key")
                if found.status == 200:
                    assert int(found.body) == int(found.headers["X-Fence-Token"])
                    seen.append(int(found.body))

        await asyncio.gather(watch(), *(write(number, fence) for number, fence in enumerate(fences)))
    assert all(later >= earlier for earlier, later in pairwise(seen))


async def test_a_write_that_is_overtaken_on_its_way_is_refused(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged when the mark was 3, sent when it was 7: the bucket refuses, and the write is judged again."""
    await store.write(Write("key", 3, 0, b"value", "", 0))
    assert isinstance(store, S3Store)
    send = store._objects.replace

    async def late(name: str, body: bytes, *, etag: str | None) -> str | None:
        await other.write(Write("key", 7, 0, b"value", "", 0))
        return await send(name, body, etag=etag)

    monkeypatch.setattr(store._objects, "replace", late)
    written = await store.write(Write("key", 5, 0, b"late", "", 0))
    assert (written.outcome, written.mark.token) == (Outcome.STALE, 7)
    assert (await other.read("key", 0))[2:] == (7, 0, 2, b"value")


async def test_a_write_that_meets_its_own_success_is_accepted_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply was lost, and what lies below sent the request again: the bucket refuses the repetition."""
    assert isinstance(store, S3Store)
    send = store._objects.replace

    async def twice(name: str, body: bytes, *, etag: str | None) -> str | None:
        assert await send(name, body, etag=etag)
        return await send(name, body, etag=etag)

    monkeypatch.setattr(store._objects, "replace", twice)
    for version, token in enumerate((3, 5), start=1):
        written = await store.write(Write("key", token, 0, b"value", "", 0))
        assert (written.outcome, written.version) == (Outcome.ACCEPTED, version)
    assert [row.outcome for row in await rows_of(store, prefix="key")] == ["accepted", "accepted"]
    assert await store.log_from() == 1


@pytest.mark.faults
async def test_what_was_answered_holds_after_kill_9_of_the_resource(place: str) -> None:
    accepted: dict[int, bytes] = {}
    async with resource.spawn(store=place) as node:
        async with ResourceClient(node.url) as client:

            async def provoke(number: int) -> None:
                for fence in range(number, 10_000, 8):
                    body = b"%d by %d" % (fence, number)
                    reply = await client.put("key", body, fence=fence)
                    if not reply.status:
                        raise Unanswered(reply.error)
                    if reply.status == 200:
                        accepted[fence] = body

            writers = [asyncio.create_task(provoke(number)) for number in range(1, 9)]
            async with asyncio.timeout(120):
                while len(accepted) < 10:
                    await asyncio.sleep(0.001)
            node.kill()
            ends = await asyncio.gather(*writers, return_exceptions=True)
            assert all(isinstance(end, Unanswered) for end in ends), ends
        await node.restart()
        async with ResourceClient(node.url) as client:
            newest = max(accepted)
            found = await client.get("key")
            assert int(found.headers["X-Fence-Token"]) >= newest
            assert found.body == accepted.get(int(found.headers["X-Fence-Token"]), found.body)
            assert (await client.put("key", b"stale", fence=newest)).status == 409
            with pytest.raises(LogIncomplete):
                await client.log()


@pytest.mark.faults
@pytest.mark.slow
async def test_what_was_answered_holds_after_kill_9_of_the_bucket() -> None:
    async with s3() as server:
        await server.create_bucket("values")
        store = f"s3:http://access:hidden@{server.address}/values"
        async with resource.spawn(store=store) as node, ResourceClient(node.url) as client:
            for fence in range(1, 31):
                assert (await client.put("key", b"%d" % fence, fence=fence)).status == 200
            assert (await client.get("other", fence=7)).status == 404
            server.kill()
            refused = await client.put("key", b"nowhere", fence=31)
            assert refused.status == 503
            assert refused.json["error"].startswith("the S3 store failed: ")
            await server.start()
            async with asyncio.timeout(120):
                while (found := await client.get("key")).status != 200:
                    await asyncio.sleep(0.1)
            assert (found.body, found.headers["X-Max-Fence"]) == (b"30", "30")
            assert (await client.get("other")).headers["X-Max-Fence"] == "7"
            assert (await client.put("key", b"stale", fence=30)).status == 409
            async with asyncio.timeout(120):
                while (await client.put("key", b"again", fence=32)).status != 200:
                    await asyncio.sleep(0.1)


async def test_a_write_that_was_decided_elsewhere_is_missed_aloud(store: Store, other: Store) -> None:
    await store.write(Write("key", 1, 0, b"", "", 0))
    assert await store.log_from() == 1
    await other.write(Write("key", 2, 0, b"", "", 0))
    assert (await store.write(Write("key", 3, 0, b"", "", 0))).mark.token == 2
    assert await store.log_from() == 3
    assert [row.token for row in await rows_of(store, prefix="key")] == [3]
    assert await store.log_from() < await other.log_from(), "numbers of two starts never meet"


async def test_a_mark_is_lowered_beside_the_resource_that_runs(place: str, store: Store) -> None:
    await store.write(Write("key", 2**63 - 1, 0, b"burnt", "", 0))
    ended = await _command("lower-mark", "key", "--to", "35", "--store", place)
    assert (ended.returncode, "hidden" in ended.stdout + ended.stderr) == (0, False), ended
    assert (await store.write(Write("key", 35, 0, b"ours", "", 0))).mark.token == 35
    assert await store.log_from() == 1, "lowering a mark is no write"


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
async def test_a_bucket_that_ignores_conditions_is_refused_at_the_start(place: str, ignored: str) -> None:
    bucket = place.partition("@")[2]
    async with ignoring(ignored, f"http://{bucket.partition('/')[0]}") as url:
        path = bucket.partition("/")[2]
        with pytest.raises(StoreError, match=f"ignores {ignored}"):
            await open_store(
                url.replace("http://", "s3:http://me:hidden@") + f"/{path}", Fencing.ON, log=True
            )


async def test_a_bucket_that_is_not_there_is_one_sentence_without_the_secret(place: str) -> None:
    missing = place.replace("/values/", "/no-such-bucket/")
    ended = await _command("resource", "--listen", "127.0.0.1:0", "--store", missing)
    assert ended.returncode == 2, ended
    (sentence,) = ended.stderr.splitlines()
    assert "cannot open the S3 store" in sentence
    assert "hidden" not in sentence


def test_a_place_is_read_like_a_url() -> None:
    there = Place.parse("https://me:a%2Fb@store.example:9000/values/some/where?region=eu-1")
    assert there == ("values", "some/where/", "https://store.example:9000", "eu-1", "me", "a/b")
    assert Place.parse("//values") == ("values", "", None, None, "", "")
    assert Place.parse("//me:secret@values/x")[:3] == ("values", "x/", None)


@pytest.mark.parametrize(
    "text", ["", "values", "//", "http://host", "http://me@host/b", "//b?sync=full", "ftp://h/b"]
)
async def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match="cannot open the S3 store"):
        await open_store(f"s3:{text}", Fencing.ON, log=False)


async def _command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *words]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
