"""Fences of the queue's scripts: exact beyond what Lua can count, and a broken counter blocks nobody."""

import asyncio
from contextlib import aclosing

import pytest

import asyncdlock
from asyncdlock import BackendError
from asyncdlock.backends.redis import queue_from_url
from asyncdlock.types import Claim
from harness.servers import RedisNode
from tests.redis_queue.support import (
    STRANGER,
    fifo,
    hold_in_turn,
    queue_url,
    until_clean,
    until_waiting,
    waiters,
)

PAST_DOUBLES = 2**53 - 3
"""A few steps below the first integer that Lua's numbers cannot tell from the next."""


@pytest.mark.parametrize("handoffs", [0, 7])
async def test_fences_are_exact_past_the_precision_of_lua(node: RedisNode, handoffs: int) -> None:
    """By direct grant, by message and by reply; alone and in blocks."""
    url = queue_url(node)
    async with (
        asyncdlock.connect(url, local_handoffs=handoffs) as one,
        asyncdlock.connect(url, local_handoffs=handoffs) as two,
    ):
        await one.raise_fence("k", above=PAST_DOUBLES)
        holder = await one.acquire("k")
        assert holder.fence == PAST_DOUBLES + 1
        async with waiters(one, "k", 10) as mine, waiters(two, "k", 10) as theirs:
            await until_waiting(node, "k", 20 if handoffs == 0 else 1)
            await holder.release()
            served = await hold_in_turn([*mine, *theirs])
        fences = [holder.fence, *(handle.fence for handle in served)]
        assert fences == sorted(set(fences))
        if handoffs == 0:
            assert fences == list(range(PAST_DOUBLES + 1, PAST_DOUBLES + 22))
        await until_clean(node)


async def test_the_largest_fences(node: RedisNode) -> None:
    async with fifo(node) as client, fifo(node) as other:
        await client.raise_fence("k", above=2**63 - 4)
        holder = await client.acquire("k")
        assert holder.fence == 2**63 - 3
        async with waiters(other, "k", 1) as (waiter,):
            await until_waiting(node, "k", 1)
            await holder.release()
            last = await waiter
            assert last.fence == 2**63 - 2
            await last.release()


async def test_a_counter_at_its_end_lets_the_holder_release_and_tells_who_waits(node: RedisNode) -> None:
    async with fifo(node) as client, fifo(node) as other:
        await client.raise_fence("k", above=2**63 - 2)
        holder = await client.acquire("k", ttl=600.0)
        assert holder.fence == 2**63 - 1
        async with waiters(other, "k", 3) as tasks:
            await until_waiting(node, "k", 3)
            assert await holder.release()
            assert await node.command("EXISTS", "k") == 0
            done, _ = await asyncio.wait(tasks, timeout=30.0)
            assert len(done) == 3
            for task in tasks:
                with pytest.raises(BackendError, match="overflow"):
                    task.result()
        await until_clean(node)


async def test_a_counter_that_is_no_number_is_reported_and_takes_no_lock(node: RedisNode) -> None:
    async with fifo(node) as client:
        await node.command("SET", "fence:{k}", "twelve")
        with pytest.raises(BackendError, match="not an integer"):
            await client.acquire("k")
        with pytest.raises(BackendError, match="not an integer"):
            await client.try_acquire("k")
        await until_clean(node)


async def test_a_lost_counter_is_noticed_and_lifted(
    node: RedisNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with fifo(node) as client:
        await client.raise_fence("k", above=100)
        await (await client.acquire("k")).release()
        await node.command("DEL", "fence:{k}")
        handle = await client.acquire("k")
        assert handle.fence > 101, "the caller never sees its fences run backwards"
        assert "its server lost data" in caplog.text
        await handle.release()


@pytest.mark.parametrize("reserve", [0, 3, 200])
async def test_a_release_undoes_a_claim_whatever_it_was_to_reserve(node: RedisNode, reserve: int) -> None:
    """The protocol of backends: release(claim) takes back whatever acquire(claim, reserve=…) left."""
    async with aclosing(queue_from_url(queue_url(node), local_handoffs=64)) as inner:
        claim = Claim("k", "11111111-1111-8111-8111-000000000001", 10.0)
        await node.command("SET", "k", STRANGER)
        waiting = asyncio.create_task(inner.acquire(claim, reserve=reserve))
        await until_waiting(node, "k", 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        await inner.release(claim)
        await until_clean(node, but=("k",))
        await node.command("DEL", "k")
        grant = await inner.acquire(claim, reserve=reserve)
        assert grant.reserved <= reserve
        last = int(await node.command("GET", "fence:{k}"))
        assert grant.fence + grant.reserved <= last
        await inner.release(claim)
