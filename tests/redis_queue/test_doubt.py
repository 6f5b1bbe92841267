"""What cannot be known is not claimed: replies that are lost, and repetitions that are refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import asyncdlock
from asyncdlock import BackendError, LockClient
from harness.faults import Link, Way, open_link
from harness.servers import RedisNode
from tests.redis_queue.support import PATIENT, eventually, until_clean

LONG = 600.0

pytestmark = pytest.mark.parametrize("scheme", ["redis", "redis-queue"])


@asynccontextmanager
async def behind_link(node: RedisNode, scheme: str) -> AsyncIterator[tuple[Link, LockClient]]:
    async with (
        open_link(node.address) as link,
        asyncdlock.connect(f"{scheme}://{link.address}/0") as client,
    ):
        warm_up = await client.acquire("warm-up")
        await warm_up.release()
        yield link, client


@asynccontextmanager
async def lost(link: Link, way: Way) -> AsyncIterator[None]:
    """What the body sends does not arrive, or is not answered; at the end the connection is broken off."""
    before = link.bytes_seen(way)
    link.lose(way)
    yield
    await asyncio.wait_for(link.until_more_than(before, way), PATIENT)
    link.mend()


async def test_a_release_that_was_lost_says_not_that_a_lock_of_another_was_ours(
    node: RedisNode, scheme: str
) -> None:
    """Another took it over; our request to release it never arrived, and its repetition finds it not ours."""
    async with behind_link(node, scheme) as (link, client):
        handle = await client.acquire("k", ttl=LONG)
        await node.command("SET", "k", "another", "PX", int(LONG * 1000))
        async with lost(link, Way.TO_SERVER):
            releasing = asyncio.create_task(handle.release())
        with pytest.raises(BackendError, match="may have been given back, or lost before") as raised:
            await releasing
        assert not raised.value.definite
        assert await node.command("GET", "k") == "another"


async def test_a_release_that_was_lost_is_in_doubt_when_others_had_the_lock_since(
    node: RedisNode, scheme: str
) -> None:
    async with behind_link(node, scheme) as (link, client), asyncdlock.connect(node.url) as other:
        handle = await client.acquire("k", ttl=LONG)
        await node.command("DEL", "k")
        assert await (await other.acquire("k")).release()
        async with lost(link, Way.TO_SERVER):
            releasing = asyncio.create_task(handle.release())
        with pytest.raises(BackendError) as raised:
            await releasing
        assert not raised.value.definite


@pytest.mark.parametrize("way", Way)
async def test_a_release_that_is_repeated_is_true_when_nobody_had_the_lock_since(
    node: RedisNode, scheme: str, way: Way
) -> None:
    """Whether the first request was lost or its reply."""
    async with behind_link(node, scheme) as (link, client):
        handle = await client.acquire("k", ttl=LONG)
        async with lost(link, way):
            releasing = asyncio.create_task(handle.release())
        assert await releasing is True
        await until_clean(node)


async def test_an_acquire_is_definitely_refused_only_if_no_try_was_carried_out(
    node: RedisNode, scheme: str
) -> None:
    """The first was, its reply was lost, and its repetition is refused: what it left behind is given back."""
    async with behind_link(node, scheme) as (link, client):
        async with lost(link, Way.TO_CLIENT):
            acquiring = asyncio.create_task(client.acquire("k", ttl=LONG))

            async def carried_out() -> bool:
                return bool(await node.command("EXISTS", "k"))

            await eventually(carried_out, "the first request")
            await node.command("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(BackendError, match="OOM") as raised:
            await acquiring
        assert not raised.value.definite
        await node.command("CONFIG", "SET", "maxmemory", 0)
        await until_clean(node)


async def test_an_acquire_that_was_refused_at_once_is_definite(node: RedisNode, scheme: str) -> None:
    async with behind_link(node, scheme) as (_, client):
        await node.command("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(BackendError, match="OOM") as raised:
            await client.acquire("k", ttl=LONG)
        assert raised.value.definite
        await node.command("CONFIG", "SET", "maxmemory", 0)
