"""On one key with others who know no queue: redis:// and redis-py's own Lock."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

import asyncdlock
from harness.servers import RedisNode
from tests.redis_queue.support import (
    PATIENT,
    backend_of,
    eventually,
    fifo,
    hold_in_turn,
    until_clean,
    until_waiting,
    waiters,
)


def patient(node: RedisNode) -> asyncdlock.LockClient:
    """A client whose regular looks at the queue come too late to help."""
    return fifo(node, patience=600.0)


async def until_it_asks_now_and_then(client: asyncdlock.LockClient) -> None:
    """It has looked, and found a holder that will not tell."""

    async def asks() -> bool:
        return backend_of(client)._lists["k"]._delays is not None

    await eventually(asks, "a look at the queue")


@pytest.fixture
async def redis_py(node: RedisNode) -> AsyncIterator[Redis]:
    async with Redis.from_url(node.url) as client:
        yield client


async def test_waiters_follow_a_holder_of_redis_py_that_releases_without_a_word(
    node: RedisNode, redis_py: Redis
) -> None:
    async with patient(node) as client:
        theirs = redis_py.lock("k", timeout=600.0)
        assert await theirs.acquire()
        assert await client.try_acquire("k") is None
        async with waiters(client, "k", 5) as tasks:
            queued = await until_waiting(node, "k", 5)
            await until_it_asks_now_and_then(client)
            await theirs.release()
            served = await hold_in_turn(tasks)
        assert [handle.owner for handle in served] == queued
        await until_clean(node)


async def test_a_lock_of_redis_py_without_a_ttl_is_waited_for_as_well(
    node: RedisNode, redis_py: Redis
) -> None:
    async with patient(node) as client:
        theirs = redis_py.lock("k", timeout=None)
        assert await theirs.acquire()
        async with waiters(client, "k", 1) as tasks:
            await until_waiting(node, "k", 1)
            await until_it_asks_now_and_then(client)
            await theirs.release()
            await hold_in_turn(tasks)


async def test_our_holder_keeps_out_redis_py_and_redis(node: RedisNode, redis_py: Redis) -> None:
    async with fifo(node) as client, asyncdlock.connect(node.url) as plain:
        holder = await client.acquire("k")
        assert not await redis_py.lock("k", timeout=10.0).acquire(blocking=False)
        assert await plain.try_acquire("k") is None
        await holder.release()
        handle = await plain.acquire("k")
        assert handle.fence > holder.fence, "one counter for both"
        await handle.release()


async def test_waiters_follow_a_holder_of_redis(node: RedisNode) -> None:
    async with patient(node) as client, asyncdlock.connect(node.url) as plain:
        holder = await plain.acquire("k", ttl=600.0)
        async with waiters(client, "k", 5) as tasks:
            queued = await until_waiting(node, "k", 5)
            await until_it_asks_now_and_then(client)
            await holder.release()
            served = await hold_in_turn(tasks)
        assert [handle.owner for handle in served] == queued
        assert all(handle.fence > holder.fence for handle in served)
        await until_clean(node)


async def test_everybody_at_once_excludes_everybody(node: RedisNode, redis_py: Redis) -> None:
    """No two hold at the same time, everybody comes to an end, and fences rise in order of grant."""
    holders = 0
    fences: list[int] = []

    async with fifo(node) as client, asyncdlock.connect(node.url) as plain:

        async def with_us(locks: asyncdlock.LockClient) -> None:
            nonlocal holders
            for _ in range(5):
                async with locks.hold("k", ttl=60.0) as handle:
                    fences.append(handle.fence)
                    holders += 1
                    assert holders == 1
                    await asyncio.sleep(0.001)
                    holders -= 1

        async def with_redis_py() -> None:
            nonlocal holders
            for _ in range(5):
                async with redis_py.lock("k", timeout=60.0, sleep=0.01):
                    holders += 1
                    assert holders == 1
                    await asyncio.sleep(0.001)
                    holders -= 1

        async with asyncio.timeout(120.0), asyncio.TaskGroup() as everybody:
            for _ in range(4):
                everybody.create_task(with_us(client))
                everybody.create_task(with_us(plain))
                everybody.create_task(with_redis_py())
        assert len(fences) == 40
        assert fences == sorted(set(fences))
        await until_clean(node)


async def test_a_holder_that_another_library_displaced_finds_out(node: RedisNode, redis_py: Redis) -> None:
    async with fifo(node) as client:
        holder = await client.acquire("k")
        await redis_py.set("k", "a stranger", px=60_000)
        assert await holder.release() is False
        assert await node.command("GET", "k") == "a stranger", "and leaves the other's lock alone"


async def test_who_knows_no_queue_gets_the_lock_once_nobody_queues(node: RedisNode, redis_py: Redis) -> None:
    """Not before: every release passes the lock on, and leaves it to nobody who happens to ask."""
    async with fifo(node) as client, asyncdlock.connect(node.url) as plain:
        holder = await client.acquire("k", ttl=60.0)
        async with waiters(client, "k", 30, ttl=60.0) as tasks:
            await until_waiting(node, "k", 30)
            asking = asyncio.create_task(plain.acquire("k", ttl=60.0))
            theirs = redis_py.lock("k", timeout=60.0, sleep=0.001)
            asking_too = asyncio.create_task(theirs.acquire())
            await holder.release()
            for task in tasks:
                handle = await task
                await asyncio.sleep(0.005)  # both ask meanwhile
                assert not asking.done()
                assert not asking_too.done()
                await handle.release()
        async with asyncio.timeout(PATIENT):
            await asyncio.wait((asking, asking_too), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                await (await asking).release()
                await asking_too
                await theirs.release()
            else:
                await theirs.release()
                await (await asking).release()
