"""Bounded queues, single attempts and time-outs."""

import asyncio

import pytest

from asyncdlock import AcquireTimeout, QueueFull
from harness.servers import RedisNode
from tests.redis_queue.support import (
    STRANGER,
    eventually,
    fifo,
    hold_in_turn,
    until_clean,
    until_waiting,
    waiters,
    waiting,
)


async def test_a_full_queue_refuses_and_has_room_again(node: RedisNode) -> None:
    async with fifo(node, max_waiters=3) as one, fifo(node, max_waiters=3) as two:
        holder = await one.acquire("k")
        async with waiters(one, "k", 2) as mine, waiters(two, "k", 1) as theirs:
            queued = await until_waiting(node, "k", 3)
            for client in (one, two):
                with pytest.raises(QueueFull, match="'k' has 3 waiters already"):
                    await client.acquire("k")
            assert await waiting(node, "k") == queued, "the refused are not in it"
            mine[0].cancel()
            await until_waiting(node, "k", 2)
            async with waiters(two, "k", 1) as later:
                await until_waiting(node, "k", 3)
                await holder.release()
                assert len(await hold_in_turn([mine[1], *theirs, *later])) == 3
        await until_clean(node)


async def test_a_queue_of_no_waiters_takes_free_locks_only(node: RedisNode) -> None:
    async with fifo(node, max_waiters=0) as client:
        holder = await client.acquire("k")
        with pytest.raises(QueueFull):
            await client.acquire("k")
        await holder.release()
        assert await (await client.acquire("k")).release()
        await until_clean(node)


async def test_exactly_as_many_wait_as_may_when_all_come_at_once(node: RedisNode) -> None:
    async with fifo(node, max_waiters=10) as one, fifo(node, max_waiters=10) as two:
        holder = await one.acquire("k")
        tasks = [asyncio.create_task(client.acquire("k")) for _ in range(50) for client in (one, two)]
        await until_waiting(node, "k", 10)

        async def others_refused() -> bool:
            return sum(task.done() for task in tasks) == 90

        await eventually(others_refused, "ninety refusals")
        refused = [task for task in tasks if task.done()]
        assert all(isinstance(task.exception(), QueueFull) for task in refused)
        await holder.release()
        assert len(await hold_in_turn([task for task in tasks if task not in refused])) == 10
        await until_clean(node)


async def test_a_single_attempt_neither_barges_nor_joins(node: RedisNode) -> None:
    """Not even when it comes between a lock that was let go without a word and the waiters' next look."""
    async with fifo(node) as client, fifo(node) as hasty:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 3) as tasks:
            queued = await until_waiting(node, "k", 3)
            assert await hasty.try_acquire("k") is None
            assert await waiting(node, "k") == queued
            await node.command("DEL", "k")
            assert await hasty.try_acquire("k") is None, "the lock is free, but three wait for it"
            served = await hold_in_turn(tasks)
            assert [handle.owner for handle in served] == queued
        handle = await hasty.try_acquire("k")
        assert handle is not None
        await handle.release()
        await until_clean(node)


async def test_a_single_attempt_of_a_process_that_waits_itself_does_not_barge(node: RedisNode) -> None:
    async with fifo(node) as client:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 2) as tasks:
            queued = await until_waiting(node, "k", 2)
            await node.command("DEL", "k")
            assert await client.try_acquire("k") is None
            assert [handle.owner for handle in await hold_in_turn(tasks)] == queued


async def test_a_newcomer_does_not_barge_either(node: RedisNode) -> None:
    async with fifo(node) as client, fifo(node) as other:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 2) as tasks:
            queued = await until_waiting(node, "k", 2)
            await node.command("DEL", "k")
            newcomer = asyncio.create_task(other.acquire("k"))
            served = await hold_in_turn([*tasks, newcomer])
            assert [handle.owner for handle in served][:2] == queued


async def test_a_wait_that_times_out_leaves_the_queue(node: RedisNode) -> None:
    async with fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k")
        tasks = [asyncio.create_task(client.acquire("k", timeout=0.05 * i)) for i in range(5)]
        await asyncio.wait(tasks)
        for task in tasks:
            with pytest.raises(AcquireTimeout):
                task.result()
        await until_clean(node, but=("k",))
        await holder.release()
        await until_clean(node)


async def test_time_outs_that_race_with_the_grant_lose_no_lock(node: RedisNode) -> None:
    """Whoever times out at the moment of its grant gives it back: the next gets it without a TTL's delay."""
    async with fifo(node) as one, fifo(node) as two:
        for attempt in range(40):
            holder = await one.acquire("k", ttl=600.0)
            racing = asyncio.create_task(two.acquire("k", ttl=600.0, timeout=0.02))
            patient = asyncio.create_task(one.acquire("k", ttl=600.0, timeout=30.0))
            await asyncio.sleep(0.018 + 0.0001 * attempt)
            await holder.release()
            await asyncio.wait([racing])
            if racing.exception() is None:
                await racing.result().release()
            await (await patient).release()
        await until_clean(node)
