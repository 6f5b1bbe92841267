"""FencedS3: a store that honours conditions refuses a stale writer; one that does not is found out."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from aiobotocore.session import get_session
from aiohttp import web
from aiohttp.test_utils import TestServer
from botocore import UNSIGNED
from botocore.config import Config

from asyncdlock.errors import LockError, StaleFence
from asyncdlock.fencing.s3 import FencedS3, UnfitStore, UnknownOutcome, probe
from harness.servers.s3_node import S3Node, s3

BUCKET = "values"


def s3_client(url: str) -> Any:
    return get_session().create_client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        config=Config(signature_version=UNSIGNED, s3={"addressing_style": "path"}, read_timeout=120),
    )


@pytest.fixture(scope="module")
def node() -> Iterator[S3Node]:
    with asyncio.Runner() as runner:
        server = s3()
        node = runner.run(server.__aenter__())
        try:
            yield node
        finally:
            runner.run(server.__aexit__(None, None, None))


@pytest.fixture
async def client(node: S3Node) -> AsyncIterator[Any]:
    async with s3_client(node.url) as client:
        with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
            await client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def key() -> str:
    return f"account/{uuid4()}"


async def test_a_fresh_writer_wins_and_a_stale_one_loses(client: Any, key: str) -> None:
    store = FencedS3(client, BUCKET)
    assert await store.get(key) == (None, 0, None)
    await store.put(key, b"33", fence=33)
    await store.put(key, b"34", fence=34)
    with pytest.raises(StaleFence) as refused:
        await store.put(key, b"late", fence=33)
    assert (refused.value.seen, refused.value.got) == (34, 33)
    with pytest.raises(StaleFence):
        await store.get(key, fence=33)
    found = await store.get(key, fence=34)
    assert (found.body, found.fence) == (b"34", 34)


async def test_a_holder_numbers_its_writes(client: Any, key: str) -> None:
    store = FencedS3(client, BUCKET)
    await store.put(key, b"first", fence=5)
    await store.put(key, b"first", fence=5)  # a repetition after a lost reply
    with pytest.raises(LockError, match="seq"):
        await store.put(key, b"second", fence=5)
    await store.put(key, b"second", fence=5, seq=1)
    assert (await store.get(key)).body == b"second"


async def test_an_object_that_was_written_without_a_fence_is_below_all(client: Any, key: str) -> None:
    await client.put_object(Bucket=BUCKET, Key=key, Body=b"before we came")
    await FencedS3(client, BUCKET).put(key, b"ours", fence=1)
    assert (await FencedS3(client, BUCKET).get(key)).body == b"ours"


async def test_writers_at_once_never_let_the_object_run_backwards(client: Any, key: str) -> None:
    store = FencedS3(client, BUCKET)
    fences = list(range(1, 65))
    random.Random(7).shuffle(fences)
    seen: list[int] = []

    async def write(fence: int) -> None:
        with contextlib.suppress(StaleFence):
            await store.put(key, b"%d" % fence, fence=fence)

    async def watch() -> None:
        while not seen or seen[-1] < 64:
            found = await store.get(key)
            assert found.body is None or int(found.body) == found.fence
            seen.append(found.fence)

    await asyncio.gather(watch(), *map(write, fences))
    assert all(later >= earlier for earlier, later in pairwise(seen))


async def test_a_value_that_comes_back_does_not_let_a_delayed_writer_in(client: Any, key: str) -> None:
    """Most ETags are made of the bytes alone: the same bytes under a later fence must be another object."""

    class Delayed:
        """The client of a holder whose write is on its way while a later one puts back what it had found."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        async def put_object(self, **request: Any) -> Any:
            if request["Key"] == key:
                await FencedS3(client, BUCKET).put(key, b"balance 10", fence=7)
            return await client.put_object(**request)

    await FencedS3(client, BUCKET).put(key, b"balance 10", fence=3)
    with pytest.raises(StaleFence) as refused:
        await FencedS3(Delayed(), BUCKET).put(key, b"late", fence=5)
    assert (refused.value.seen, refused.value.got) == (7, 5)
    assert (await FencedS3(client, BUCKET).get(key))[:2] == (b"balance 10", 7)


@pytest.mark.parametrize("others", [1, 20])
async def test_a_write_that_the_client_repeats_is_not_called_stale(
    node: S3Node, client: Any, key: str, others: int
) -> None:
    """aiohttp and botocore send a write again by themselves when no answer comes; others may have written."""
    puts = 0

    async def answers(request: web.Request) -> bool:
        nonlocal puts
        if request.method != "PUT" or key not in request.path:
            return True
        puts += 1
        if puts == 1:
            for fence in range(6, 6 + others):
                await FencedS3(client, BUCKET).put(key, b"later", fence=fence)
        return puts > 1

    await FencedS3(client, BUCKET).put(key, b"before", fence=3)
    async with proxy(node.url, answers=answers) as url, s3_client(url) as through:
        overtaken = FencedS3(through, BUCKET).put(key, b"stored, and overwritten", fence=5)
        if others > 16:  # more than are remembered
            with pytest.raises(UnknownOutcome):
                await overtaken
        else:
            await overtaken
            with pytest.raises(StaleFence):
                await FencedS3(through, BUCKET).put(key, b"never stored", fence=5)
    assert puts == 2


async def test_other_readers_are_told_where_the_value_ends(client: Any, key: str) -> None:
    await FencedS3(client, BUCKET).put(key, b"plain", fence=3)
    head = await client.head_object(Bucket=BUCKET, Key=key)
    last = int(head["Metadata"]["asyncdlock-size"]) - 1
    part = await client.get_object(Bucket=BUCKET, Key=key, Range=f"bytes=0-{last}")
    async with part["Body"] as stream:
        assert await stream.read() == b"plain"


async def test_a_store_that_honours_conditions_passes_the_probe_and_keeps_nothing_of_it(client: Any) -> None:
    await probe(client, BUCKET)
    listed = await client.list_objects_v2(Bucket=BUCKET, Prefix="asyncdlock-probe/")
    assert listed.get("KeyCount", 0) == 0


@contextlib.asynccontextmanager
async def ignoring(header: str, url: str) -> AsyncIterator[str]:
    """The URL of a proxy in front of the real store that drops a header, as some stores do."""
    async with proxy(url, ignored=header) as through:
        yield through


async def _answer(_: web.Request) -> bool:
    return True


@contextlib.asynccontextmanager
async def proxy(
    url: str, *, ignored: str = "", answers: Callable[[web.Request], Awaitable[bool]] = _answer
) -> AsyncIterator[str]:
    """The URL of a proxy; `answers`, asked behind the store's reply, says whether that gets through."""

    async def pass_on(request: web.Request) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name != ignored}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method,
                f"{url}{request.rel_url.raw_path_qs}",
                headers=headers,
                data=await request.read(),
            ) as reply,
        ):
            body = await reply.read()
            kept = {
                k: v for k, v in reply.headers.items() if k not in ("Content-Length", "Transfer-Encoding")
            }
            if not await answers(request) and request.transport is not None:
                request.transport.abort()
            return web.Response(status=reply.status, body=body, headers=kept)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", pass_on)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
async def test_a_store_that_ignores_conditions_is_refused_before_anything_is_stored(
    node: S3Node, client: Any, key: str, ignored: str
) -> None:
    async with ignoring(ignored, node.url) as url, s3_client(url) as through:
        store = FencedS3(through, BUCKET)
        with pytest.raises(UnfitStore, match=ignored):
            await store.put(key, b"unguarded", fence=7)
    assert (await FencedS3(client, BUCKET).get(key)).body is None
