"""Forcing a lock from a process that passes it on among its own tasks, and what a client tells of itself."""

import asyncio
import math
import time
from contextlib import aclosing

import pytest

import asyncdlock
from asyncdlock.backends.redis import queue_from_url
from asyncdlock.types import Claim
from harness.servers import RedisNode
from tests.redis_queue.support import PATIENT, eventually, fifo, queue_url, until_waiting


async def test_no_fence_of_a_forced_out_process_reaches_the_next_holders(node: RedisNode) -> None:
    """It may hand on within its block until it learns; the whole block is below what is granted next."""
    async with (
        asyncdlock.connect(queue_url(node), local_handoffs=8) as former,
        asyncdlock.connect(queue_url(node)) as operator,
    ):
        handle = await former.acquire("k", ttl=60.0)
        others = [asyncio.create_task(former.acquire("k", ttl=60.0)) for _ in range(8)]
        await asyncio.sleep(0)
        block = (await operator.inspect("k")).last_fence
        assert block == handle.fence + 8
        assert await operator.force_release("k")
        after = await operator.acquire("k", ttl=60.0)
        # The former process does not know yet: what it hands on by itself comes from the old block.
        late = [handle.fence]
        if await handle.release():
            late.append((await asyncio.wait_for(others[0], PATIENT)).fence)
        assert max(late) <= block < after.fence
        assert (await operator.inspect("k")).owner == after.owner
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        assert await after.release()


async def test_a_floor_that_the_client_remembers_is_kept(node: RedisNode) -> None:
    """The server lost its counter while the holder is still there: the next fence is above all the same."""
    async with fifo(node) as locks, fifo(node) as other:
        await locks.raise_fence("k", above=1000)
        handle = await locks.acquire("k", ttl=60.0)
        await node.command("DEL", "fence:{k}")
        assert await locks.force_release("k")
        after = await other.acquire("k", ttl=60.0)
        assert after.fence > handle.fence > 1000


async def test_large_fences_stay_exact(node: RedisNode) -> None:
    """Lua counts in doubles: past 2^53 the script compares digits."""
    floor = 2**62 + 1
    async with fifo(node) as locks:
        await locks.raise_fence("k", above=floor)
        handle = await locks.acquire("k", ttl=60.0)
        assert (await locks.inspect("k")).fence == handle.fence == floor + 1
        assert await locks.force_release("k")
        after = await locks.acquire("k", ttl=60.0)
        assert after.fence == floor + 3


async def test_a_reply_that_is_lost_does_not_cost_the_next_holder_its_lock(one_node: RedisNode) -> None:
    """Sent again after a lost connection, the request is about the holder that was seen, and nobody else."""
    async with aclosing(queue_from_url(queue_url(one_node), local_handoffs=0)) as backend:
        first, second = (Claim("k", f"11111111-1111-8111-8111-00000000000{n}", 60.0) for n in (1, 2))
        await backend.acquire(first)
        waiting = asyncio.create_task(backend.acquire(second))
        await until_waiting(one_node, "k", 1)
        operator = Claim("k", "22222222-2222-8222-8222-000000000000", 1.0)
        assert await backend._queue.force_release(operator, first.owner, 0)
        await asyncio.wait_for(waiting, PATIENT)
        assert await backend._queue.force_release(operator, first.owner, 0) == 0
        assert await one_node.command("GET", "k") == second.owner
        assert await backend.release(second)


async def test_the_record_ends_with_its_client(node: RedisNode) -> None:
    async def records() -> list[str]:
        found: list[str] = await node.command("KEYS", "client:*")
        return found

    async with fifo(node) as locks, asyncdlock.connect(node.url) as plain:
        assert await records() == []
        async with locks.hold("a", label="one of its own"), plain.hold("b"):
            assert len(await records()) == 2
            for record in await records():
                assert 0 < await node.command("PTTL", record) <= 3_600_000

        async def forgotten() -> bool:
            fields = [await node.command("HKEYS", record) for record in await records()]
            return [set(names) for names in fields] == [{"label", "fences", "ttl"}] * 2

        await eventually(forgotten, "the record of the owner's own label is gone")

    async def gone() -> bool:
        return await records() == []

    await eventually(gone, "the records are gone")


async def test_whoever_may_not_write_a_record_can_lock_and_has_no_label(one_node: RedisNode) -> None:
    await one_node.command("ACL", "SETUSER", "plain", "on", ">p", "~k", "~fence:{k}", "-@all", "+@connection")
    await one_node.command("ACL", "SETUSER", "plain", "+eval", "+evalsha", "+get", "+set", "+del", "+pttl")
    await one_node.command("ACL", "SETUSER", "plain", "+pexpire", "+incrby")
    url = one_node.url.replace("redis://", "redis://plain:p@", 1)
    async with asyncdlock.connect(url) as limited, asyncdlock.connect(one_node.url) as operator:
        async with limited.hold("k", label="unheard") as handle:
            info = await operator.inspect("k")
            assert (info.owner, info.label, info.fence) == (handle.owner, None, None)


async def test_a_lock_of_several_ttls_tells_no_wrong_time(one_node: RedisNode) -> None:
    async with fifo(one_node) as locks, fifo(one_node) as operator:
        await locks.acquire("a", ttl=600.0)
        began = time.time()
        handle = await locks.acquire("b", ttl=60.0)
        assert (await operator.inspect("b")).since is None, "its TTL cannot be told"
        await handle.renew()
        since = (await operator.inspect("b")).since
        assert since is not None
        assert math.isclose(since, began, abs_tol=PATIENT)


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
async def test_in_a_cluster(redis_cluster_url: str, scheme: str) -> None:
    """Records and locks are on different nodes; a prefix keeps a key's own hash tag."""
    url = redis_cluster_url.replace("redis", scheme, 1)
    async with (
        asyncdlock.connect(url, prefix="app:", label="holder") as locks,
        asyncdlock.connect(url, prefix="app:") as operator,
    ):
        names = [f"job-{number}" for number in range(10)] + ["{tenant}:job", "{tenant}"]
        handles = [await locks.acquire(name, ttl=60.0) for name in names]
        assert sorted([name async for name in operator.keys()]) == sorted(names)  # noqa: SIM118

        async def told() -> bool:
            return (await operator.inspect(names[0])).label == "holder"

        await eventually(told, "the record has arrived")
        for handle in handles:
            info = await operator.inspect(handle.key)
            assert (info.owner, info.label, info.fence) == (handle.owner, "holder", handle.fence)
        waiting = asyncio.create_task(operator.acquire("{tenant}:job", ttl=60.0))
        await asyncio.sleep(0.05)
        assert await operator.force_release("{tenant}:job")
        after = await asyncio.wait_for(waiting, PATIENT)
        assert after.fence > handles[-2].fence


async def test_a_lock_named_like_a_clients_record_is_kept_apart(node: RedisNode) -> None:
    async with fifo(node) as locks:
        first = await locks.acquire("k", ttl=60.0)
        key = f"client:{{{first.owner[:23]}}}"
        async with locks.hold(key) as handle:
            assert (await locks.inspect(key)).owner == handle.owner
            assert (await locks.inspect("k")).label == first.label
