"""A message or a reply that is lost with its connection costs one more question, never a TTL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import asyncdlock
from asyncdlock import LockClient
from asyncdlock.backends.redis.fence_counter import fence_counter
from asyncdlock.backends.redis.queue_server import QueueScripts
from harness.faults import Link, Way, open_link
from harness.servers import RedisNode
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
    waiting,
)

LONG = 600.0
"""A TTL that no test outlasts: whoever waits for it to end fails."""


@asynccontextmanager
async def behind_link(node: RedisNode) -> "AsyncIterator[tuple[Link, LockClient]]":
    """A client whose connection can lose what the server says.

    It is so patient that its regular looks at the queue come too late to help.
    """
    async with open_link(node.address) as link:
        url = f"redis-queue://{link.address}/0"
        async with asyncdlock.connect(url, local_handoffs=0, patience=LONG) as client:
            yield link, client


@asynccontextmanager
async def one_answer_lost(link: Link) -> AsyncIterator[None]:
    """What the server says to the body never arrives; at the end the connection is broken off."""
    before = link.bytes_seen(Way.TO_CLIENT)
    link.lose(Way.TO_CLIENT)
    yield
    await asyncio.wait_for(link.until_more_than(before, Way.TO_CLIENT), PATIENT)
    link.mend()


async def test_waiters_whose_connection_is_cut_keep_their_places(node: RedisNode) -> None:
    async with fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k", ttl=LONG)
        async with waiters(client, "k", 50, ttl=LONG) as tasks:
            queued = await until_waiting(node, "k", 50)
            for _ in range(3):
                await disconnect_everybody(node)
            assert await until_waiting(node, "k", 50) == queued
            await holder.release()
            assert [handle.owner for handle in await hold_in_turn(tasks)] == queued
        await until_clean(node)


async def test_a_grant_whose_message_was_lost_is_found_on_the_next_connection(node: RedisNode) -> None:
    """Cut between the grant and its delivery."""
    async with behind_link(node) as (link, client), fifo(node) as holding:
        holder = await holding.acquire("k", ttl=LONG)
        async with waiters(client, "k", 3, ttl=LONG) as tasks:
            first, *others = await until_waiting(node, "k", 3)
            await first_look_is_over(client, holder)
            async with one_answer_lost(link):
                await holder.release()
            assert await node.command("GET", "k") == first, "granted, but nobody knows"
            handle = await asyncio.wait_for(tasks[0], PATIENT)
            assert handle.owner == first
            assert handle.fence > holder.fence + 1, "the lost fence is not used again"
            assert await waiting(node, "k") == others, "the others kept their places"
            await handle.release()
            assert [handle.owner for handle in await hold_in_turn(tasks[1:])] == others
        await until_clean(node)


async def test_a_lost_grant_is_found_whatever_the_order_of_the_others(node: RedisNode) -> None:
    """The waiter that was told in vain need not be the one that its process believes to be first."""
    async with fifo(node) as client:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 3, ttl=LONG) as tasks:
            *others, last = await until_waiting(node, "k", 3)
            await node.command("ZREM", "queue:{k}", f"{last} {int(LONG * 1000)} 1")
            await node.command("SET", "k", last, "PX", int(LONG * 1000))
            handle = await asyncio.wait_for(tasks[-1], PATIENT)
            assert handle.owner == last
            await handle.release()
            assert [handle.owner for handle in await hold_in_turn(tasks[:-1])] == others


async def test_a_request_whose_reply_was_lost_is_made_again_without_a_second_place(node: RedisNode) -> None:
    async with behind_link(node) as (link, client), fifo(node) as holding:
        holder = await holding.acquire("k", ttl=LONG)
        async with waiters(client, "k", 1, ttl=LONG):  # listens from now on
            await until_waiting(node, "k", 1)
            await first_look_is_over(client, holder)
            async with AsyncExitStack() as stack:
                async with one_answer_lost(link):
                    await stack.enter_async_context(waiters(client, "k", 5, ttl=LONG))
                    queued = (await until_waiting(node, "k", 6))[1:]
                await client.try_acquire("other")  # answered: the new connection is up
                assert (await until_waiting(node, "k", 6))[1:] == queued
        await until_waiting(node, "k", 0)
        await holder.release()
        await until_clean(node, but=("other",))


async def test_a_direct_grant_whose_reply_was_lost_is_taken_again_with_a_new_fence(node: RedisNode) -> None:
    async with behind_link(node) as (link, client):
        await (await client.acquire("k", ttl=LONG)).release()
        async with one_answer_lost(link):
            acquiring = asyncio.create_task(client.acquire("k", ttl=LONG))
        handle = await asyncio.wait_for(acquiring, PATIENT)
        assert await node.command("GET", "k") == handle.owner
        assert int(await node.command("GET", "fence:{k}")) == handle.fence == 3
        assert await handle.release()
        await until_clean(node)


async def test_a_release_whose_reply_was_lost_still_hands_the_lock_on(node: RedisNode) -> None:
    """The next holder is of the same process: the lost reply was to tell it."""
    async with behind_link(node) as (link, client):
        holder = await client.acquire("k", ttl=LONG)
        async with waiters(client, "k", 1, ttl=LONG) as (waiter,):
            await until_waiting(node, "k", 1)
            await first_look_is_over(client, holder)
            async with one_answer_lost(link):
                releasing = asyncio.create_task(holder.release())
            assert await releasing, "the first request was carried out"
            handle = await asyncio.wait_for(waiter, PATIENT)
            assert handle.fence > holder.fence
            await handle.release()
        await until_clean(node)


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
async def test_a_body_is_not_told_of_a_loss_when_only_the_reply_to_its_release_was_lost(
    node: RedisNode, scheme: str
) -> None:
    async with (
        open_link(node.address) as link,
        asyncdlock.connect(f"{scheme}://{link.address}/0") as client,
    ):
        lost = client._metrics.lost
        hold = client.hold("k", ttl=LONG)
        await hold.__aenter__()
        async with one_answer_lost(link):
            leaving = asyncio.create_task(hold.__aexit__(None, None, None))
        await asyncio.wait_for(leaving, PATIENT)
        assert client._metrics.lost == lost
        await until_clean(node)


async def test_who_was_dropped_while_it_reconnected_queues_again(node: RedisNode) -> None:
    """A release found nobody subscribed: the waiters of that moment lose their places, not their turn."""
    async with fifo(node) as client, fifo(node) as other:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 2) as tasks, waiters(other, "k", 1) as (competitor,):
            await until_waiting(node, "k", 3)
            await node.command("DEL", "queue:{k}", "sessions:{k}")
            await until_waiting(node, "k", 3)
            await node.command("DEL", "k")
            assert len(await hold_in_turn([*tasks, competitor])) == 3
        await until_clean(node)


async def test_a_waiter_cancelled_while_it_joins_again_leaves_the_queue(node: RedisNode) -> None:
    """Its request to join again is answered NOSCRIPT and repeated: the release must come after that."""
    async with fifo(node) as client:
        backend = backend_of(client)
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 1) as (waiter,):
            await until_waiting(node, "k", 1)
            await node.command("SCRIPT", "FLUSH")
            scripts = QueueScripts.of(fence_counter())
            for script in (scripts.release, scripts.watch):
                await node.command("SCRIPT", "LOAD", script.source)
            forgetting = asyncio.create_task(node.command("DEL", "queue:{k}", "sessions:{k}"))
            waiting = backend._lists["k"].waiters.values()
            await eventually_now(lambda: any(each.rejoining for each in waiting))
            node.pause()
            await asyncio.sleep(0)  # the request to join again is on its way
            waiter.cancel()
            await asyncio.sleep(0.05)  # the release would be behind the first request by now
            node.resume()
            await forgetting
        await until_clean(node, but=("k",))


async def eventually_now(condition: Callable[[], bool]) -> None:
    """Return in the very turn of the loop in which the condition came true."""
    async with asyncio.timeout(PATIENT):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("moment", range(4))
async def test_a_look_that_starts_when_the_last_waiter_leaves_is_no_error(
    one_node: RedisNode, moment: int
) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with fifo(one_node) as client:
        backend = backend_of(client)
        await one_node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 1) as (waiter,):
            await until_waiting(one_node, "k", 1)
            waiting = backend._lists["k"]
            waiter.cancel()
            for _ in range(moment):
                await asyncio.sleep(0)
            waiting._start_look()
            looks = set(backend._background.tasks)
            if looks:
                await asyncio.wait(looks)
            assert all(look.exception() is None for look in looks)
        await until_clean(one_node, but=("k",))
    assert not problems
