"""A grant that reaches its waiter late is never believed: it is confirmed with a new fence, or waited for."""

import asyncio
import time
from functools import partial

import pytest

from harness import servers
from harness.faults import FakeClock
from harness.servers import RedisNode
from tests.redis_queue.contender import Contender
from tests.redis_queue.support import (
    PATIENT,
    eventually,
    fifo,
    first_look_is_over,
    hold_in_turn,
    until_clean,
    until_waiting,
    waiters,
)

LONG = 600.0
"""A TTL that no test outlasts."""


async def tell(node: RedisNode, owner: str, fence: int, key: str, *, seconds_ago: float) -> None:
    """Send the message of a grant as the server's scripts do, as if it had been on its way so long."""
    seconds, micros = map(int, await node.command("TIME"))
    then = seconds * 1000 + micros // 1000 - int(seconds_ago * 1000)
    assert await node.command("PUBLISH", f"asyncdlock:{owner[:23]}", f"{owner} {fence} {then} {key}") == 1


async def test_a_grant_from_long_ago_does_not_make_a_second_holder(node: RedisNode) -> None:
    async with fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k")
        async with waiters(client, "k", 1, ttl=2.0) as (waiter,):
            (owner,) = await until_waiting(node, "k", 1)
            await tell(node, owner, holder.fence + 1, "k", seconds_ago=1.5)
            done, _ = await asyncio.wait([waiter], timeout=0.5)
            assert not done, "the message was believed while another held the lock"
            assert await until_waiting(node, "k", 1) == [owner], "and it kept its place"
            await holder.release()
            handle = await waiter
            assert handle.fence > holder.fence
            await handle.release()


async def test_a_late_grant_brings_a_fence_above_those_of_others_who_held_meanwhile(node: RedisNode) -> None:
    """Granted 1; expired; others had 2 to 6; ours again by a request in flight; then the first message."""
    async with fifo(node) as client:
        await node.command("SET", "k", "somebody", "PX", 60_000)
        async with waiters(client, "k", 1, ttl=2.0) as (waiter,):
            (owner,) = await until_waiting(node, "k", 1)
            await node.command("SET", "fence:{k}", 6)
            await node.command("SET", "k", owner, "PX", 60_000)
            await node.command("DEL", "queue:{k}")
            await tell(node, owner, 1, "k", seconds_ago=1.5)
            handle = await waiter
            assert handle.fence > 6
            assert handle.held
            assert await handle.release()


async def test_a_stalled_event_loop_takes_its_turn_again_after_those_who_did_not_stall(
    one_node: RedisNode,
) -> None:
    """The grant comes in while the loop is blocked for longer than the lease lasts."""
    async with fifo(one_node) as holding, fifo(one_node) as client, Contender.started(one_node, "k") as other:
        holder = await holding.acquire("k")
        async with waiters(client, "k", 1, ttl=0.5) as (waiter,):
            await until_waiting(one_node, "k", 1)
            other.go()
            await until_waiting(one_node, "k", 2)
            releasing = asyncio.create_task(holder.release())
            await asyncio.sleep(0)  # the request is on its way
            # The lease of 0.5 s ends, and the other process looks once a second, on a busy machine as well.
            time.sleep(4.0)
            assert await releasing
            handle = await waiter
            await other.done()
            assert handle.held
            assert await one_node.command("GET", "k") == handle.owner
            (passed,) = other.grants
            assert holder.fence < passed.fence < handle.fence
            await handle.release()


@pytest.mark.parametrize("seconds", [60.0, -60.0])
async def test_a_server_whose_clock_was_set_makes_no_lease_longer(seconds: float) -> None:
    """What its clock says of the start of a lease is worth nothing then: the grant is confirmed."""
    with FakeClock() as clock:
        async with (
            servers.redis(flavour="valkey", environment=clock.environment) as node,
            fifo(node, patience=600.0) as holding,
            fifo(node, patience=600.0) as client,
        ):
            holder = await holding.acquire("k", ttl=400.0)
            async with waiters(client, "k", 1, ttl=100.0) as (waiter,):
                await until_waiting(node, "k", 1)
                await first_look_is_over(client, holder)
                clock.jump(seconds)
                await node.until(partial(shows, node, time.time() + seconds), "the new time")
                sent = time.monotonic()
                await holder.release()
                handle = await waiter
                assert sent + 98.0 < handle.expires_at < time.monotonic() + 100.0
                assert handle.fence == holder.fence + 2, "confirmed, with a fence of its own"
                assert await node.command("GET", "k") == handle.owner
                await handle.release()


async def shows(node: RedisNode, wall_clock: float) -> bool:
    seconds, _ = map(int, await node.command("TIME"))
    return abs(seconds - wall_clock) < 30.0


async def test_a_server_clock_that_was_set_forward_costs_places_not_turns() -> None:
    """Every process seems to have been silent for an hour: all are passed over, and queue again."""
    with FakeClock() as clock:
        async with (
            servers.redis(flavour="valkey", environment=clock.environment) as node,
            fifo(node) as holding,
            fifo(node) as one,
            fifo(node) as two,
        ):
            holder = await holding.acquire("k", ttl=36_000.0)
            async with waiters(one, "k", 5) as ones, waiters(two, "k", 5) as twos:
                await until_waiting(node, "k", 10)
                clock.jump(3600.0)
                await holder.release()
                served = await hold_in_turn([*ones, *twos])
            fences = [handle.fence for handle in served]
            assert len(fences) == 10
            assert fences == sorted(set(fences))
            await until_clean(node)


async def test_a_server_clock_that_was_set_back_keeps_no_frozen_process_alive() -> None:
    """It said before that it would live until a time that is an hour away now: it is passed over at once."""
    with FakeClock() as clock:
        async with (
            servers.redis(flavour="valkey", environment=clock.environment) as node,
            fifo(node) as holding,
            fifo(node) as client,
            Contender.started(node, "k", waiters=4, ttl=LONG) as frozen,
        ):
            holder = await holding.acquire("k", ttl=LONG)
            frozen.go()
            await until_waiting(node, "k", 4)
            frozen.pause()
            clock.jump(-3600.0)
            await node.until(partial(shows, node, time.time() - 3600.0), "the new time")
            async with waiters(client, "k", 1, ttl=LONG) as (waiter,):
                await until_waiting(node, "k", 5)
                await holder.release()
                handle = await asyncio.wait_for(waiter, PATIENT)
                assert handle.fence == holder.fence + 1, "no place of the frozen process was granted"
                frozen.resume()
                await until_waiting(node, "k", 4)
                await handle.release()
                await frozen.done()


async def test_who_waits_says_the_right_time_again_after_the_clock_was_set_back() -> None:
    with FakeClock() as clock:
        async with (
            servers.redis(flavour="valkey", environment=clock.environment) as node,
            fifo(node) as holding,
            fifo(node, patience=0.3) as client,
        ):
            await holding.acquire("k", ttl=LONG)
            async with waiters(client, "k", 1, ttl=LONG):
                (owner,) = await until_waiting(node, "k", 1)
                clock.jump(-3600.0)
                await node.until(partial(shows, node, time.time() - 3600.0), "the new time")

                async def said_again() -> bool:
                    until = await node.command("HGET", "sessions:{k}", owner[:23])
                    return float(until) / 1000 < time.time() - 1800.0

                await eventually(said_again, "a time of the new clock")
