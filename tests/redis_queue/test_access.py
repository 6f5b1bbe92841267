"""What the server must know and permit: scripts that it forgot, commands that its ACL refuses."""

import asyncio
import re
from pathlib import Path

import pytest

import asyncdlock
from asyncdlock import BackendError, Handle, LockClient
from harness import servers
from harness.servers import RedisNode
from harness.servers.tls import Tls
from tests.redis_queue.support import PATIENT, fifo, hold_in_turn, until_clean, until_waiting, waiters

PAGE = (Path(__file__).parents[2] / "docs/backends/redis.md").read_text("utf-8")
LEAST_RULES = [
    *("~job:*", "~fence:{job:*", "~queue:{job:*", "~sessions:{job:*", "resetchannels", "&asyncdlock:*"),
    *("-@all", "+@connection", "+eval", "+evalsha", "+subscribe", "+publish", "+pubsub", "+time"),
    *("+get", "+set", "+del", "+exists", "+pttl", "+pexpire", "+incrby"),
    *("+zadd", "+zrem", "+zcard", "+zscore", "+zpopmin"),
    *("+hget", "+hset", "+hdel", "+hgetall", "+hincrby"),
]
"""The least that a user of this backend needs, for keys that start with `job:`; the documentation says so."""


async def user_url(node: RedisNode, *rules: str) -> str:
    """A URL for a user with these ACL rules."""
    await node.command("ACL", "SETUSER", "app", "on", ">secret", *rules)
    return f"redis-queue://app:secret@{node.address}/0?local_handoffs=0"


async def test_forgotten_scripts_are_sent_again(node: RedisNode) -> None:
    async with fifo(node) as client:
        for _ in range(3):
            await node.command("SCRIPT", "FLUSH")
            holder = await client.acquire("k")
            async with waiters(client, "k", 20) as tasks:
                queued = await until_waiting(node, "k", 20)
                await node.command("SCRIPT", "FLUSH")
                await holder.release()
                served = await hold_in_turn(tasks)
            assert [handle.owner for handle in served] == queued
        await until_clean(node)


async def test_who_may_not_subscribe_is_told_so_and_does_not_wait_in_vain(node: RedisNode) -> None:
    url = await user_url(node, "~*", "+@all", "resetchannels")
    async with fifo(node) as holding, asyncdlock.connect(url) as client:
        assert await (await client.acquire("free")).release(), "who need not wait need not listen"
        holder = await holding.acquire("k")
        for _ in range(2):
            tasks = [asyncio.create_task(client.acquire("k", timeout=30.0)) for _ in range(5)]
            await asyncio.wait(tasks)
            for task in tasks:
                with pytest.raises(BackendError, match=r"NOPERM.*channel") as raised:
                    task.result()
                assert "secret" not in str(raised.value)
        assert await client.try_acquire("k") is None
        await holder.release()
        await until_clean(node)


async def refused_to_wait(client: LockClient, key: str, reason: str) -> None:
    with pytest.raises(BackendError, match=reason):
        await client.acquire(key, timeout=PATIENT)


async def works_but_for_waiting(client: LockClient, held: Handle) -> None:
    assert await (await client.acquire("free")).release()
    assert await client.try_acquire("busy") is None
    await held.renew()


async def test_who_may_not_subscribe_can_do_all_but_wait(node: RedisNode) -> None:
    """Also on the connections that follow, and the error says what is missing."""
    url = await user_url(node, "~*", "+@all", "resetchannels")
    async with fifo(node) as holding, asyncdlock.connect(url) as client:
        held = await client.acquire("held")
        await holding.acquire("busy")
        for _ in range(2):
            await refused_to_wait(client, "busy", r"NOPERM.*\+subscribe and &asyncdlock:\*")
            await works_but_for_waiting(client, held)
            await node.command("CLIENT", "KILL", "USER", "app")
            await works_but_for_waiting(client, held)
        assert await held.release()


async def test_who_may_not_subscribe_any_more_is_told_so_when_it_reconnects(node: RedisNode) -> None:
    url = await user_url(node, "~*", "+@all", "allchannels")
    async with fifo(node) as holding, asyncdlock.connect(url) as client:
        held = await client.acquire("held")
        busy = await holding.acquire("busy")
        async with waiters(client, "busy", 3) as tasks:
            await until_waiting(node, "busy", 3)
            await node.command("ACL", "SETUSER", "app", "resetchannels")
            await node.command("CLIENT", "KILL", "USER", "app")
            await asyncio.wait(tasks, timeout=PATIENT)
            for task in tasks:
                with pytest.raises(BackendError, match=r"&asyncdlock:\*"):
                    task.result()
        await until_waiting(node, "busy", 0)
        await works_but_for_waiting(client, held)
        await node.command("ACL", "SETUSER", "app", "allchannels")
        async with waiters(client, "busy", 1) as (waiter,):
            await until_waiting(node, "busy", 1)
            await busy.release()
            await hold_in_turn([waiter])
        assert await held.release()


async def test_a_connection_without_pushed_messages_can_do_all_but_wait(node: RedisNode) -> None:
    async with fifo(node) as holding, fifo(node, protocol=2) as client:
        held = await client.acquire("held")
        await holding.acquire("busy")
        for _ in range(2):
            await refused_to_wait(client, "busy", "RESP3")
            await works_but_for_waiting(client, held)
        assert await held.release()


async def test_who_may_use_its_own_channels_and_keys_only(node: RedisNode) -> None:
    url = await user_url(node, *LEAST_RULES)
    async with asyncdlock.connect(url) as one, asyncdlock.connect(url) as two:
        holder = await one.acquire("job:1")
        async with waiters(one, "job:1", 5) as ones, waiters(two, "job:1", 5) as twos:
            queued = await until_waiting(node, "job:1", 10)
            await holder.renew()
            await one.raise_fence("job:1", above=100)
            await holder.release()
            served = await hold_in_turn([*ones, *twos])
        assert [handle.owner for handle in served] == queued
        assert served[0].fence > 100
        with pytest.raises(BackendError, match=r"NOPERM|permission"):
            await one.acquire("other")
        await until_clean(node)


@pytest.mark.parametrize("tls", ["server", "mutual"])
async def test_encrypted_connections(tls: Tls) -> None:
    async with servers.redis(tls=tls, password="not-a-secret") as node:
        url = node.url.replace("rediss://", "rediss-queue://", 1)
        async with asyncdlock.connect(url) as one, asyncdlock.connect(url, local_handoffs=0) as two:
            holder = await one.acquire("k")
            async with waiters(two, "k", 3) as tasks:
                await until_waiting(node, "k", 3)
                await holder.release()
                assert len(await hold_in_turn(tasks)) == 3


async def test_a_unix_socket(node: RedisNode) -> None:
    async with asyncdlock.connect(f"unix-queue://{node.unix_socket}?db=3", local_handoffs=0) as client:
        holder = await client.acquire("k")
        async with waiters(client, "k", 3) as tasks:
            await asyncio.sleep(0.05)
            await holder.release()
            assert len(await hold_in_turn(tasks)) == 3
        assert await node.command("DBSIZE") == 0, "it is another database"


async def test_a_wrong_password_is_reported_without_it(node: RedisNode) -> None:
    await user_url(node, "~*", "&*", "+@all")
    url = f"redis-queue://app:wrong-password@{node.address}/0"
    async with asyncdlock.connect(url) as client:
        with pytest.raises(BackendError, match="refused the credentials") as raised:
            await client.acquire("k")
    assert "wrong-password" not in str(raised.value)


async def test_shared_locks_need_a_little_more(node: RedisNode) -> None:
    """What the page names beside the least rules, and no more."""
    rules = re.search(r"With shared locks and semaphores also `(.*?)`", PAGE)
    assert rules is not None
    url = await user_url(node, *LEAST_RULES, *rules[1].split())
    async with asyncdlock.connect(url) as one, asyncdlock.connect(url) as two:
        for kind in (_read, _permit):
            first, second = await kind(one), await kind(two)
            await first.renew()
            writer = asyncio.create_task(two.acquire("job:1", timeout=PATIENT))
            await until_waiting(node, "job:1", 1)
            assert await first.release()
            assert await second.release()
            assert await (await writer).release()


async def _read(client: LockClient) -> Handle:
    return await client.acquire("job:1", shared=True)


async def _permit(client: LockClient) -> Handle:
    return await client.semaphore("job:1", permits=2).acquire()
