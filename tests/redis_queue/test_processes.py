"""Dead, frozen and killed processes: what each costs the others is bounded, and never a TTL per waiter."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

import asyncdlock
from harness.servers import RedisNode
from tests.redis_queue.contender import Contender
from tests.redis_queue.support import (
    PATIENT,
    STRANGER,
    eventually,
    fifo,
    first_look_is_over,
    hold_in_turn,
    until_clean,
    until_waiting,
    waiters,
    waiting,
)

pytestmark = pytest.mark.faults

LONG = 600.0
"""A TTL that no test outlasts: whoever waits for it to end fails."""


async def test_a_killed_process_with_many_waiters_costs_the_others_nothing(node: RedisNode) -> None:
    """Its places are passed over in one go: nobody listens on its channel any more."""
    async with (
        fifo(node) as holding,
        fifo(node) as client,
        Contender.started(node, "k", waiters=100, ttl=LONG) as doomed,
    ):
        holder = await holding.acquire("k", ttl=LONG)
        doomed.go()
        await until_waiting(node, "k", 100)
        async with waiters(client, "k", 10, ttl=LONG) as tasks:
            queued = (await until_waiting(node, "k", 110))[100:]
            await doomed.kill()
            await nobody_listens_but(node, 1)
            await holder.release()
            assert [handle.owner for handle in await hold_in_turn(tasks)] == queued
        await until_clean(node)


async def nobody_listens_but(node: RedisNode, processes: int) -> None:
    async def only() -> bool:
        return len(await node.command("PUBSUB", "CHANNELS", "asyncdlock:*")) <= processes

    await eventually(only, f"{processes} subscribed processes")


async def test_a_frozen_process_is_passed_over_and_queues_again_when_it_goes_on(node: RedisNode) -> None:
    """It stays subscribed, but it has not spoken for longer than its patience."""
    async with (
        fifo(node) as holding,
        fifo(node) as client,
        Contender.started(node, "k", waiters=20, ttl=LONG, patience=0.5) as frozen,
    ):
        holder = await holding.acquire("k", ttl=LONG)
        frozen.go()
        theirs = await until_waiting(node, "k", 20)
        async with waiters(client, "k", 5, ttl=LONG) as tasks:
            ours = (await until_waiting(node, "k", 25))[20:]
            frozen.pause()
            await asyncio.sleep(1.0)  # twice its patience
            await holder.release()
            assert [handle.owner for handle in await hold_in_turn(tasks)] == ours
            assert await waiting(node, "k") == []
            assert not frozen.grants
            frozen.resume()
            await frozen.done()
        assert [held.owner for held in frozen.grants] == theirs, "in their old order"
        fences = [held.fence for held in frozen.grants]
        assert fences == sorted(set(fences))
        assert not frozen.failures
        await until_clean(node)


async def test_a_grant_to_a_frozen_process_ends_with_its_lease(one_node: RedisNode) -> None:
    """It froze after it last spoke: one TTL of its waiter, once; then its other waiters are passed over."""
    async with (
        fifo(one_node) as holding,
        fifo(one_node) as client,
        Contender.started(one_node, "k", waiters=20, ttl=1.0, patience=0.9) as frozen,
    ):
        holder = await holding.acquire("k", ttl=LONG)
        frozen.go()
        await until_waiting(one_node, "k", 20)
        async with waiters(client, "k", 5, ttl=LONG) as tasks:
            ours = (await until_waiting(one_node, "k", 25))[20:]
            frozen.pause()
            await holder.release()
            released = time.monotonic()
            first = await asyncio.wait_for(tasks[0], PATIENT)
            assert time.monotonic() - released < 10 * 1.0, "not one TTL for each of the frozen waiters"
            assert first.owner == ours[0]
            frozen.resume()
            await first.release()
            await hold_in_turn(tasks[1:])
            await frozen.done()
        fences = [held.fence for held in frozen.grants]
        assert len(fences) == 20, "those that were passed over, and the one that was granted in vain, as well"
        assert fences == sorted(set(fences))
        await until_clean(one_node)


async def test_patience_is_the_waiters_own(node: RedisNode) -> None:
    """An impatient releaser does not take a patient process for dead."""
    async with fifo(node, patience=0.1) as holding, fifo(node, patience=600.0) as client:
        holder = await holding.acquire("k", ttl=LONG)
        async with waiters(client, "k", 3, ttl=LONG) as tasks:
            queued = await until_waiting(node, "k", 3)
            await first_look_is_over(client, holder)
            await asyncio.sleep(0.3)  # three times what the releaser has
            await holder.release()
            served = await hold_in_turn(tasks)
        assert [handle.owner for handle in served] == queued
        assert [handle.fence for handle in served] == [holder.fence + i for i in (1, 2, 3)]


async def test_patience_must_leave_time_to_speak(redis_url: str) -> None:
    with pytest.raises(ValueError, match=r"patience must be at least 0\.1 s, not 0\.01"):
        asyncdlock.connect(redis_url.replace("redis", "redis-queue", 1), patience=0.01)


async def test_a_killed_holder_costs_the_rest_of_its_lease(one_node: RedisNode) -> None:
    async with fifo(one_node) as client, Contender.started(one_node, "k", hold=LONG, ttl=2.0) as doomed:
        doomed.go()
        await doomed.until(lambda: bool(doomed.holding))
        (fence,) = doomed.holding.values()
        async with waiters(client, "k", 3, ttl=LONG) as tasks:
            queued = await until_waiting(one_node, "k", 3)
            await doomed.kill()
            left = int(await one_node.command("PTTL", "k"))
            assert 0 < left <= 2000
            killed = time.monotonic()
            served = await hold_in_turn(tasks)
            assert time.monotonic() - killed < left / 1000 + 10.0
        assert [handle.owner for handle in served] == queued
        assert served[0].fence > fence
        await until_clean(one_node)


async def test_kill_after_kill_fences_rise_and_nobody_starves(one_node: RedisNode) -> None:
    """Holders and waiters are killed in turn; who survives gets every turn, above every earlier fence."""
    seen: list[int] = []
    async with Contender.started(one_node, "k", waiters=5, rounds=40, ttl=1.0, hold=0.005) as survivor:
        async with AsyncExitStack() as stack:
            doomed = [
                await stack.enter_async_context(
                    Contender.started(one_node, "k", waiters=5, rounds=10_000, ttl=1.0, hold=0.005)
                )
                for _ in range(2)
            ]
            for process in (survivor, *doomed):
                process.go()
            for process in doomed:
                await process.until(lambda process=process: len(process.grants) > 5)  # type: ignore[misc]
                await process.kill()
                seen += [held.fence for held in process.grants]
                seen += process.holding.values()
        await survivor.done()
        seen += [held.fence for held in survivor.grants]
        assert len(survivor.grants) == 200
        assert not survivor.failures
    assert len(seen) == len(set(seen)), "no fence was given twice"
    by_time = sorted(survivor.grants, key=lambda held: held.at)
    assert [held.fence for held in by_time] == sorted(held.fence for held in by_time)


async def test_a_never_empty_queue_forgets_the_processes_that_once_waited(one_node: RedisNode) -> None:
    async with fifo(one_node) as client:
        await one_node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 1):
            await until_waiting(one_node, "k", 1)
            long_gone = [word for i in range(50) for word in (f"{i:023x}", "1000")]
            await one_node.command("HSET", "sessions:{k}", *long_gone)
            await one_node.command("HSET", "sessions:{k}", "seq", "999")
            async with waiters(client, "k", 1):
                await until_waiting(one_node, "k", 2)
                fields = await one_node.command("HLEN", "sessions:{k}")
                assert fields == 3, "who waits, its patience, and the sequence"
        await until_clean(one_node, but=("k",))


async def test_a_process_that_ends_regularly_leaves_nothing(node: RedisNode) -> None:
    async with Contender.started(node, "k", waiters=20, ttl=LONG) as other:
        await node.command("SET", "k", STRANGER)
        other.go()
        await until_waiting(node, "k", 20)
    await until_clean(node, but=("k",))
    assert await node.command("PUBSUB", "CHANNELS") == []


async def test_what_a_dead_queue_leaves_behind_expires(node: RedisNode) -> None:
    """After a minute, or twenty times the patience of the most patient process that waited."""
    async with fifo(node) as holding, fifo(node) as hasty, fifo(node, patience=600.0) as patient:
        await holding.acquire("k", ttl=LONG)

        async def expire_within(low: float, high: float) -> None:
            for name in ("queue:{k}", "sessions:{k}"):
                assert low * 1000 < await node.command("PTTL", name) <= high * 1000

        async with waiters(hasty, "k", 1, ttl=LONG):
            await until_waiting(node, "k", 1)
            await expire_within(0, 60)
            async with waiters(patient, "k", 1, ttl=LONG):
                await until_waiting(node, "k", 2)
                await expire_within(60, 12_000)
                async with waiters(hasty, "k", 1, ttl=LONG):
                    await until_waiting(node, "k", 3)
                    await expire_within(60, 12_000)
                    spoken = await node.command("HGETALL", "sessions:{k}")

                    async def said_again() -> bool:
                        return bool(await node.command("HGETALL", "sessions:{k}") != spoken)

                    await eventually(said_again, "the hasty one says that it lives")
                    await expire_within(60, 12_000)
