"""Shared locks and permits in Redis's own state: lost messages, restarts, strangers, leftovers."""

import asyncio

import pytest

import asyncdlock
from harness import servers
from harness.servers import RedisNode
from tests.redis_queue.support import PATIENT, fifo, until_clean, until_waiting
from tests.redis_queue.test_lost_messages import behind_link, one_answer_lost

LONG = 600.0


async def test_the_lock_ends_with_the_last_lease_and_others_see_it_held(node: RedisNode) -> None:
    async with fifo(node) as client, asyncdlock.connect(node.url) as plain:
        long = await client.acquire("k", shared=True, ttl=LONG)
        short = await client.acquire("k", shared=True, ttl=5.0)
        assert await node.command("ZCARD", "holders:{k}") == 2
        assert 5_000 < int(await node.command("PTTL", "k")) <= LONG * 1000
        assert await plain.try_acquire("k") is None, "redis:// took a lock that readers hold"
        assert await long.release()
        assert 0 < int(await node.command("PTTL", "k")) <= 5_000
        assert 0 < int(await node.command("PTTL", "holders:{k}")) <= 5_000
        assert await short.release()
        got = await plain.acquire("k", timeout=PATIENT)
        assert got.fence > short.fence
        reader = asyncio.create_task(client.acquire("k", shared=True, timeout=PATIENT))
        await until_waiting(node, "k", 1)
        assert await got.release()
        assert await (await reader).release()
        await until_clean(node)


async def test_a_reader_told_in_vain_asks_again(node: RedisNode) -> None:
    """The connection is cut between the grant and its message: every reader gets in, and no writer before."""
    async with behind_link(node) as (link, client), fifo(node) as holding:
        holder = await holding.acquire("k", ttl=LONG)
        readers = [asyncio.create_task(client.acquire("k", shared=True, ttl=LONG)) for _ in range(3)]
        await until_waiting(node, "k", 3)
        writer = asyncio.create_task(holding.acquire("k", ttl=LONG))
        await until_waiting(node, "k", 4)
        async with one_answer_lost(link):
            await holder.release()
        handles = await asyncio.wait_for(asyncio.gather(*readers), PATIENT)
        assert not writer.done()
        assert len({handle.fence for handle in handles}) == 3
        for handle in handles:
            await handle.renew()
            assert await handle.release()
        last = await asyncio.wait_for(writer, PATIENT)
        assert last.fence > max(handle.fence for handle in handles)
        assert await last.release()
        await until_clean(node)


async def test_a_message_that_comes_too_late_takes_nothing_away(node: RedisNode) -> None:
    """A grant was told and asked for again: when the message comes, its reader has the lock by the reply."""
    async with fifo(node) as client, fifo(node) as other:
        writer = await other.acquire("k")
        reading = asyncio.create_task(client.acquire("k", shared=True, ttl=LONG))
        await until_waiting(node, "k", 1)
        assert await writer.release()
        reader = await reading
        message = f"{reader.owner} {reader.fence} 1 k"
        assert await node.command("PUBLISH", f"asyncdlock:{reader.owner[:23]}", message) == 1
        await asyncio.sleep(0.1)
        await reader.renew()
        assert await reader.release()
        # Nobody waits for this one: it is given back.
        assert await node.command("PUBLISH", f"asyncdlock:{reader.owner[:23]}", message) == 1
        await until_clean(node)


async def test_readers_and_permits_outlast_a_restart_with_data() -> None:
    async with servers.redis(persistent=True) as node, fifo(node) as one, fifo(node) as two:
        readers = [await client.acquire("k", shared=True, ttl=60.0) for client in (one, two)]
        permits = [await client.semaphore("s", permits=2).acquire(ttl=60.0) for client in (one, two)]
        writer = asyncio.create_task(one.acquire("k", ttl=60.0))
        third = asyncio.create_task(two.semaphore("s", permits=2).acquire(ttl=60.0))
        await until_waiting(node, "k", 1)
        await until_waiting(node, "s", 1)
        node.kill()
        await node.start()
        for handle in (*readers, *permits):
            await handle.renew()
        assert not writer.done()
        assert not third.done()
        assert await permits[0].release()
        got = await asyncio.wait_for(third, PATIENT)
        for handle in readers:
            assert await handle.release()
        last = await asyncio.wait_for(writer, PATIENT)
        assert last.fence > max(reader.fence for reader in readers)
        for handle in (last, got, permits[1]):
            assert await handle.release()
        await until_clean(node)


async def test_readers_are_lost_with_their_servers_data(node: RedisNode) -> None:
    async with fifo(node) as one, fifo(node) as two:
        reader = await one.acquire("k", shared=True, ttl=60.0)
        waiting = asyncio.create_task(two.acquire("k", ttl=60.0))
        await until_waiting(node, "k", 1)
        node.kill()
        await node.start(wipe=True)
        writer = await asyncio.wait_for(waiting, PATIENT)
        with pytest.raises(asyncdlock.LockLost):
            await reader.renew()
        late = asyncio.create_task(two.acquire("k", shared=True, ttl=60.0))
        assert await writer.release()
        granted = await asyncio.wait_for(late, PATIENT)
        assert await reader.release() is False
        assert await granted.release()
        await until_clean(node)


async def test_what_an_earlier_time_left_is_nobodys_lease(node: RedisNode) -> None:
    """Somebody deleted the lock: its readers have lost it, also when there are new ones."""
    async with fifo(node) as one, fifo(node) as two:
        lost = await one.acquire("k", shared=True, ttl=LONG)
        await node.command("DEL", "k")
        async with two.hold("k"):
            with pytest.raises(asyncdlock.LockLost):
                await lost.renew()
        reader = await two.acquire("k", shared=True)
        assert await node.command("ZRANGE", "holders:{k}", 0, -1) == [reader.owner]
        assert await lost.release() is False
        assert await reader.release()
        await until_clean(node)


async def test_a_crowd_of_readers_is_let_in_by_one_release(node: RedisNode) -> None:
    async with fifo(node) as one, fifo(node) as two:
        writer = await one.acquire("k", ttl=LONG)
        tasks = [
            asyncio.create_task(client.acquire("k", shared=True, ttl=LONG))
            for client in (one, two)
            for _ in range(100)
        ]
        await until_waiting(node, "k", 200)
        before = one._backend.commands + two._backend.commands
        assert await writer.release()
        readers = await asyncio.wait_for(asyncio.gather(*tasks), PATIENT)
        assert one._backend.commands + two._backend.commands - before < 20, "they were told, and did not ask"
        assert len({reader.fence for reader in readers}) == 200
        await asyncio.gather(*(reader.release() for reader in readers))
        await until_clean(node)
