"""A server that goes away: waiters outlast a restart, or fail clearly and leave nothing behind."""

import asyncio

import pytest

from asyncdlock import BackendUnavailable
from harness import servers
from harness.servers import RedisNode
from tests.redis_queue.support import PATIENT, fifo, hold_in_turn, until_clean, until_waiting, waiters

pytestmark = pytest.mark.faults


async def test_waiters_outlast_a_restart_without_data(node: RedisNode) -> None:
    """Lock, queue and counter are gone: everybody queues again, in the old order."""
    async with fifo(node) as holding, fifo(node) as client:
        await holding.acquire("k", ttl=60.0)
        async with waiters(client, "k", 20) as tasks:
            queued = await until_waiting(node, "k", 20)
            node.kill()
            await node.start(wipe=True)
            served = await hold_in_turn(tasks)
        assert [handle.owner for handle in served] == queued
        fences = [handle.fence for handle in served]
        assert fences == sorted(set(fences))
        await until_clean(node)


async def test_waiters_keep_their_places_over_a_restart_with_data() -> None:
    async with servers.redis(persistent=True) as node, fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k", ttl=60.0)
        async with waiters(client, "k", 20) as tasks:
            queued = await until_waiting(node, "k", 20)
            node.kill()
            await node.start()
            assert await until_waiting(node, "k", 20) == queued
            assert await holder.release(), "the holder kept its lease"
            served = await hold_in_turn(tasks)
            assert [handle.owner for handle in served] == queued
            fences = [holder.fence, *(handle.fence for handle in served)]
            assert fences == sorted(set(fences))
        await until_clean(node)


async def test_waiters_of_a_server_that_stays_away_fail_and_leave_its_queue_when_it_returns() -> None:
    async with servers.redis(persistent=True) as node, fifo(node) as client:
        await node.command("SET", "k", "somebody")
        async with waiters(client, "k", 20, ttl=PATIENT) as tasks:
            await until_waiting(node, "k", 20)
            node.kill()
            await asyncio.wait(tasks)
            for task in tasks:
                with pytest.raises(BackendUnavailable, match="Redis cannot be reached"):
                    task.result()
            await node.start()
            await until_clean(node, but=("k",))
            await node.command("DEL", "k")
            assert await client.try_acquire("k"), "nobody is in the way"


async def test_a_server_that_cannot_be_reached_at_first_is_said_at_once(node: RedisNode) -> None:
    node.kill()
    async with fifo(node) as client:
        with pytest.raises(BackendUnavailable, match="Redis cannot be reached"):
            await client.acquire("k")
        await node.start()
        assert await (await client.acquire("k")).release(), "and the client recovers"
