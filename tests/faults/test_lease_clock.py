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
