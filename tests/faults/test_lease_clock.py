"""A lease is counted from before it was asked for, however long the answer takes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import asyncdlock
from asyncdlock import Handle, LockClient
from asyncdlock.types import validity
from harness import servers
from harness.faults import Link, Way, open_link

TTL = 60.0
HELD_BACK = 0.3


@pytest.fixture
async def link(redis_server: servers.RedisNode) -> AsyncIterator[Link]:
    async with open_link(redis_server.address) as link:
        yield link


@pytest.fixture(params=["redis", "redis-queue"])
async def client(request: pytest.FixtureRequest, link: Link, key: str) -> AsyncIterator[LockClient]:
    async with asyncdlock.connect(f"{request.param}://{link.address}/0") as client:
        # Connected from now on, and the server knows the scripts.
        other = await client.acquire(f"{key}-other")
        await other.renew()
        yield client


async def answer_held_back(
    node: servers.RedisNode, link: Link, key: str, ask: Awaitable[Handle | None]
) -> tuple[Handle | None, float]:
    """What was answered, and a time by which the request had certainly been sent."""
    link.hold(Way.TO_CLIENT)
    asking = asyncio.ensure_future(ask)
    async with asyncio.timeout(60.0):
        while not await node.command("PTTL", key) > (TTL - 5.0) * 1000:
            await asyncio.sleep(0.005)
    carried_out = time.monotonic()
    await asyncio.sleep(HELD_BACK)
    link.mend()
    return await asking, carried_out


@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
async def test_a_grant_counts_from_its_request(
    redis_server: servers.RedisNode, link: Link, client: LockClient, key: str, verb: str
) -> None:
    ask: Callable[..., Awaitable[Handle | None]] = getattr(client, verb)
    handle, sent = await answer_held_back(redis_server, link, key, ask(key, ttl=TTL))
    assert handle is not None
    assert handle.expires_at <= sent + validity(TTL)


async def test_a_renewal_counts_from_its_request(
    redis_server: servers.RedisNode, link: Link, client: LockClient, key: str
) -> None:
    handle = await client.acquire(key, ttl=TTL, renew=False)
    await redis_server.command("PEXPIRE", key, 30_000)

    async def renewal() -> None:
        await handle.renew()

    _, sent = await answer_held_back(redis_server, link, key, renewal())
    assert handle.expires_at <= sent + validity(TTL)


@pytest.mark.parametrize("looked", [False, True], ids=["joined", "looked"])
async def test_a_grant_by_message_counts_from_the_release(
    redis_server: servers.RedisNode, link: Link, key: str, looked: bool
) -> None:
    """Its time is the server's: compared with ours by when a request was sent, not by when its reply came."""
    url = f"redis-queue://{link.address}/0"
    async with (
        asyncdlock.connect(redis_server.url.replace("redis://", "redis-queue://")) as holding,
        asyncdlock.connect(url, patience=0.5 if looked else TTL) as client,
    ):
        await (await client.acquire(f"{key}-other")).release()
        holder = await holding.acquire(key, ttl=TTL)
        if not looked:
            link.lag(HELD_BACK, Way.TO_CLIENT)
        waiting = asyncio.create_task(client.acquire(key, ttl=TTL))
        queue = f"queue:{{{key}}}"
        await until_there(redis_server, "EXISTS", queue)
        if looked:
            link.lag(HELD_BACK, Way.TO_CLIENT)
            spoken = await redis_server.command("HGETALL", f"sessions:{{{key}}}")
            async with asyncio.timeout(60.0):  # several looks whose answers come late
                for _ in range(3):
                    while (now := await redis_server.command("HGETALL", f"sessions:{{{key}}}")) == spoken:
                        await asyncio.sleep(0.005)
                    spoken = now
        await asyncio.sleep(2 * HELD_BACK)  # the last answer has arrived
        await holder.release()
        released = time.monotonic()
        handle = await waiting
        assert handle.expires_at <= released + validity(TTL)
        await handle.release()


async def until_there(node: servers.RedisNode, *question: str) -> None:
    async with asyncio.timeout(60.0):
        while not await node.command(*question):
            await asyncio.sleep(0.005)
