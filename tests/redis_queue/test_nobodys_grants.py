"""A grant for a waiter that is gone is given back at once: it costs no TTL, and no memory."""

import asyncio

import pytest

from harness.servers import RedisNode
from tests.redis_queue.support import PATIENT, backend_of, fifo, until_clean, until_waiting, waiters


async def put_orphan_first(node: RedisNode, key: str, session: str) -> str:
    """A queue entry whose waiter is gone, as a request leaves it that was carried out after its release."""
    owner = f"{session}-ffffffffffff"
    await node.command("ZADD", f"queue:{{{key}}}", -1, f"{owner} 600000 1")
    return owner


async def test_a_message_for_nobody_is_answered_by_giving_back(node: RedisNode) -> None:
    async with fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k")
        async with waiters(client, "k", 1) as (waiter,):
            (owner,) = await until_waiting(node, "k", 1)
            await put_orphan_first(node, "k", owner[:23])
            await holder.release()
            handle = await asyncio.wait_for(waiter, PATIENT)
            assert handle.fence == holder.fence + 2, "the orphan had the fence between"
            await handle.release()
        await until_clean(node)
        assert not backend_of(client)._grants.early


async def test_a_reply_that_names_nobody_is_answered_by_giving_back(node: RedisNode) -> None:
    async with fifo(node) as client:
        holder = await client.acquire("k")
        async with waiters(client, "k", 1) as (waiter,):
            (owner,) = await until_waiting(node, "k", 1)
            await put_orphan_first(node, "k", owner[:23])
            await holder.release()
            handle = await asyncio.wait_for(waiter, PATIENT)
            await handle.release()
        await until_clean(node)


async def test_only_the_grant_that_nobody_wanted_is_given_back(node: RedisNode) -> None:
    """A message that comes twice, or late, must not end a lease that was granted after it."""
    async with fifo(node) as client, fifo(node) as other:
        blocker = await other.acquire("k")
        async with waiters(client, "k", 1) as (waiter,):
            await until_waiting(node, "k", 1)
            await blocker.release()
            handle = await waiter
            channel = f"asyncdlock:{handle.owner[:23]}"
            await node.command("PUBLISH", channel, f"{handle.owner} {handle.fence - 1} 0 k")
            await client.try_acquire("k")  # its reply comes after all that the message set off
            await client.try_acquire("k")
            assert await node.command("GET", "k") == handle.owner
            # And what set out before the lock was granted again comes to nothing on the server.
            assert await backend_of(client)._queue.give_back("k", handle.owner, handle.fence - 1) == 0
            assert await node.command("GET", "k") == handle.owner
            await handle.renew()
            assert await handle.release()


@pytest.mark.faults
async def test_requests_carried_out_after_their_cancellation_block_nobody(one_node: RedisNode) -> None:
    """A frozen server reads them from a connection that was given up, perhaps after their releases."""
    async with (
        fifo(one_node) as holding,
        fifo(one_node, call_timeout=0.5, socket_timeout=0.5) as client,
    ):
        holder = await holding.acquire("k", ttl=60.0)
        async with waiters(client, "k", 1, timeout=60.0):
            await until_waiting(one_node, "k", 1)
        await until_waiting(one_node, "k", 0)
        one_node.pause()
        doomed = [asyncio.create_task(client.acquire("k", ttl=60.0, timeout=0.7)) for _ in range(2000)]
        await asyncio.wait(doomed)
        assert all(task.exception() for task in doomed)
        one_node.resume()
        waiter = asyncio.create_task(client.acquire("k", timeout=PATIENT))
        await asyncio.sleep(0)
        await holder.release()
        handle = await waiter
        assert await handle.release()
        await until_clean(one_node)
