"""A cancelled waiter leaves nothing: no place in the queue, no session, no task, no second connection."""

import asyncio
import random
from typing import Any

import pytest

from asyncdlock import LockClient, LockError
from harness.servers import RedisNode
from tests.redis_queue.contender import Contender
from tests.redis_queue.support import (
    PATIENT,
    STRANGER,
    backend_of,
    disconnect_everybody,
    fifo,
    first_look_is_over,
    hold_in_turn,
    until_clean,
    until_waiting,
    waiters,
    wires,
)

LONG = 600.0
"""A TTL and a patience that no test outlasts."""


def nothing_is_remembered(client: LockClient) -> None:
    backend = backend_of(client)
    assert not backend._grants.waiters
    assert not backend._lists
    assert not backend._grants.early
    assert not backend._grants.asking
    assert not backend._unheard
    assert not backend._last_fences
    assert not backend._background.tasks


async def test_a_cancelled_waiter_leaves_the_queue_and_the_others_keep_their_places(node: RedisNode) -> None:
    async with fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k")
        async with waiters(client, "k", 5) as tasks:
            queued = await until_waiting(node, "k", 5)
            tasks[0].cancel()
            tasks[2].cancel()
            stay = [queued[1], queued[3], queued[4]]
            assert await until_waiting(node, "k", 3) == stay
            await holder.release()
            served = await hold_in_turn([tasks[1], *tasks[3:]])
            assert [handle.owner for handle in served] == stay
        nothing_is_remembered(client)
        await until_clean(node)


async def test_the_last_cancelled_waiter_takes_the_queue_along(node: RedisNode) -> None:
    async with fifo(node) as client:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 3):
            await until_waiting(node, "k", 3)
            assert await node.command("EXISTS", "queue:{k}", "sessions:{k}") == 2
        await until_clean(node, but=("k",))
        nothing_is_remembered(client)


@pytest.mark.parametrize("turns", range(8))
async def test_cancelled_at_any_turn_of_the_loop(node: RedisNode, turns: int) -> None:
    """Also between the grant and the moment at which the task learns of it."""
    async with fifo(node) as holding, fifo(node) as client:
        for moment in ("joining", "granted"):
            holder = await holding.acquire("k")
            waiter = asyncio.create_task(client.acquire("k"))
            if moment == "granted":
                await until_waiting(node, "k", 1)
                releasing = asyncio.create_task(holder.release())
            for _ in range(turns):
                await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.wait([waiter])
            if moment == "granted":
                await releasing
            else:
                await holder.release()
            if not waiter.cancelled():
                await waiter.result().release()
            await until_clean(node)
        nothing_is_remembered(client)


async def test_thousands_cancelled_at_random_moments(one_node: RedisNode) -> None:
    """While others hold, release and wait: nothing is left, and one connection per client did it all."""
    rng = random.Random(7)
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    granted = 0
    async with fifo(one_node) as one, fifo(one_node) as two:
        tasks_before = asyncio.all_tasks()

        async def contend(client: LockClient, key: str) -> None:
            nonlocal granted
            async with client.hold(key, ttl=60.0):
                granted += 1
                await asyncio.sleep(0.0005 * rng.random())

        async def wave(size: int) -> None:
            tasks = [
                asyncio.create_task(contend(rng.choice((one, two)), f"k{rng.randrange(3)}"))
                for _ in range(size)
            ]
            while pending := [task for task in tasks if not task.done()]:
                for task in rng.sample(pending, k=min(len(pending), 15)):
                    task.cancel()
                await asyncio.sleep(0.0005 * rng.random())
            assert all(task.cancelled() or task.exception() is None for task in tasks)

        for _ in range(4):
            await wave(1000)
        await until_clean(one_node)
        assert await wires(one_node) == 2
        async with asyncio.timeout(PATIENT):
            while len(asyncio.all_tasks() - tasks_before) > 0:
                await asyncio.sleep(0.01)
        for client in (one, two):
            nothing_is_remembered(client)
    assert 0 < granted < 4000
    assert not problems


@pytest.mark.faults
async def test_cancelled_while_connections_are_cut(one_node: RedisNode) -> None:
    rng = random.Random(11)
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with fifo(one_node, patience=0.3) as one, fifo(one_node, patience=0.3) as two:

        async def contend(client: LockClient) -> None:
            try:
                async with client.hold("k", ttl=2.0):
                    await asyncio.sleep(0.001 * rng.random())
            except LockError:
                pass  # the connection was cut once too often for that one

        for _ in range(10):
            tasks = [asyncio.create_task(contend(rng.choice((one, two)))) for _ in range(100)]
            for round_number in range(10):
                await asyncio.sleep(0.005 * rng.random())
                for task in rng.sample(tasks, k=5):
                    task.cancel()
                if round_number in (3, 6):
                    await disconnect_everybody(one_node)
            done, late = await asyncio.wait(tasks, timeout=PATIENT)
            assert not late, "everybody who was not cancelled had a turn"
            assert all(task.cancelled() or task.exception() is None for task in done)
        await until_clean(one_node)
        for client in (one, two):
            nothing_is_remembered(client)
    assert not problems


async def test_closing_a_client_takes_its_waiters_out_of_the_queue(node: RedisNode) -> None:
    async with fifo(node) as holding:
        client = fifo(node)
        holder = await holding.acquire("k")
        tasks = [asyncio.create_task(client.acquire("k")) for _ in range(50)]
        await until_waiting(node, "k", 50)
        await client.aclose()
        assert await node.command("EXISTS", "queue:{k}", "sessions:{k}") == 0
        done, late = await asyncio.wait(tasks, timeout=PATIENT)
        assert not late
        for task in done:
            with pytest.raises(LockError, match="closed"):
                task.result()
        nothing_is_remembered(client)
        assert await wires(node) == 1
        await holder.release()


async def test_a_process_with_thousands_of_waiters_uses_one_connection(one_node: RedisNode) -> None:
    async with fifo(one_node) as holding, Contender.started(one_node, "k", waiters=1000) as crowd:
        holder = await holding.acquire("k", ttl=600.0)
        crowd.go()
        await until_waiting(one_node, "k", 1000)
        assert await wires(one_node) == 2
        assert await one_node.command("PUBSUB", "NUMSUB", "asyncdlock:nobody") == ["asyncdlock:nobody", 0]
        assert len(await one_node.command("PUBSUB", "CHANNELS", "asyncdlock:*")) == 1
        await holder.release()
        await crowd.done()
        assert len(crowd.grants) == 1000
        await until_clean(one_node)


async def cancelled_in_flight(node: RedisNode, task: "asyncio.Task[Any]") -> None:
    """The task's request is sent and carried out, and its caller leaves before the reply is read."""
    node.pause()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    node.resume()
    await asyncio.wait([task])


async def test_a_cancelled_release_wakes_the_next_waiter_of_its_client(node: RedisNode) -> None:
    """Told by the reply alone, which its caller does not read any more."""
    async with fifo(node, patience=LONG) as client:
        await (await client.acquire("warm-up")).release()  # the server knows the script from now on
        holder = await client.acquire("k", ttl=LONG)
        async with waiters(client, "k", 2, ttl=LONG) as tasks:
            queued = await until_waiting(node, "k", 2)
            await first_look_is_over(client, holder)
            await cancelled_in_flight(node, asyncio.create_task(holder.release()))
            assert [handle.owner for handle in await hold_in_turn(tasks)] == queued
        await until_clean(node)


@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
async def test_a_cancelled_attempt_that_served_the_queue_wakes_the_waiter(node: RedisNode, verb: str) -> None:
    """Whoever finds a lock that was let go without a word grants it to the first in line."""
    async with fifo(node, patience=LONG) as client:
        holder = await client.acquire("k", ttl=LONG)
        async with waiters(client, "k", 2, ttl=LONG) as tasks:
            queued = await until_waiting(node, "k", 2)
            await first_look_is_over(client, holder)
            await node.command("DEL", "k")
            ask = getattr(client, verb)
            await cancelled_in_flight(node, asyncio.create_task(ask("k", ttl=LONG)))
            assert [handle.owner for handle in await hold_in_turn(tasks)] == queued
        await until_clean(node)
