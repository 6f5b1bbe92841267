"""redlock://: a majority decides, and every node is left as it was found."""

import asyncio
import contextlib

import pytest

import asyncdlock
from asyncdlock import AcquireTimeout, BackendUnavailable, LockClient, QuorumError
from harness import servers
from harness.faults import FaultJournal, Freezable, Way, frozen_coroutine, frozen_server, open_link, partition
from tests.redis_queue.support import STRANGER
from tests.redlock.conftest import counters, eventually, nobody_holds, owners, warm

LONG = 60.0


async def test_a_lock_is_held_on_every_node_and_released_on_every_node(key: str) -> None:
    async with servers.redis_nodes(5) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        handle = await locks.acquire(key, ttl=LONG)

        async def everywhere() -> bool:
            return await owners(nodes, key) == [handle.owner] * 5

        await eventually(everywhere)
        assert await handle.release()
        await nobody_holds(nodes, key)


@pytest.mark.parametrize("down", [1, 2])
async def test_the_loss_of_a_minority_is_bridged(key: str, down: int) -> None:
    async with servers.redis_nodes(5) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        for node in nodes.nodes[:down]:
            node.kill()
        first = await locks.acquire(key, ttl=LONG)
        await first.renew()
        assert await first.release()
        second = await locks.acquire(key, ttl=LONG)
        assert second.fence > first.fence
        assert await second.release()


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_without_a_majority_nothing_is_granted_and_every_failed_node_says_why(
    key: str, fault: str
) -> None:
    async with servers.redis_nodes(5) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        failed = nodes.nodes[:3]
        for node in failed:
            node.kill() if fault == "killed" else node.pause()
        with pytest.raises(QuorumError) as caught:
            await locks.acquire(key, ttl=LONG)
        assert caught.value.causes is not None
        said = [str(cause) for cause in caught.value.causes.exceptions]
        assert all(isinstance(cause, BackendUnavailable) for cause in caught.value.causes.exceptions)
        for node in failed:
            assert any(sentence.startswith(f"{node.address}: ") for sentence in said), said
        assert not caught.value.definite
        for node in failed:
            await node.start() if fault == "killed" else node.resume()
        # What a minority had granted is given back, long before the TTL.
        await nobody_holds(nodes, key)


async def test_a_lock_that_another_holds_on_a_majority_is_not_taken(key: str) -> None:
    async with servers.redis_nodes(5) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        for node in nodes.nodes[:3]:
            await node.command("SET", key, STRANGER)
        assert await locks.try_acquire(key, ttl=LONG) is None
        assert await owners(nodes, key) == [STRANGER] * 3 + [None] * 2


async def test_a_lock_that_another_holds_on_a_minority_is_taken_and_theirs_is_left_alone(key: str) -> None:
    async with servers.redis_nodes(5) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        for node in nodes.nodes[:2]:
            await node.command("SET", key, STRANGER)
        handle = await locks.try_acquire(key, ttl=LONG)
        assert handle is not None
        assert await handle.release()
        assert await owners(nodes, key) == [STRANGER] * 2 + [None] * 3


async def test_a_frozen_node_does_not_hold_up_the_others(key: str) -> None:
    """It costs the bounded time of one node's answer at most, and gets what it missed when it wakes up."""
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url, call_timeout=60.0) as locks:
        await warm(locks, nodes)
        async with frozen_server(FaultJournal(0), nodes[0]):
            handle = await locks.acquire(key, ttl=LONG)
            await handle.renew()
            assert await handle.release()
            assert await owners_of(nodes.nodes[1:], key) == [None, None]
        # The requests that waited for it were: take, extend, give back. In this order nothing is left.
        await nobody_holds(nodes, key)


async def owners_of(nodes: list[servers.RedisNode], key: str) -> list[str | None]:
    return [await node.command("GET", key) for node in nodes]


async def test_a_release_reaches_also_a_node_whose_grant_is_still_on_its_way(key: str) -> None:
    """Releasing only where the lock is known to be won would leave the slow node's grant behind."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(servers.redis_nodes(3))
        slow = await stack.enter_async_context(open_link(nodes[2].address))
        url = f"redlock://{nodes[0].address},{nodes[1].address},{slow.address}"
        locks = await stack.enter_async_context(asyncdlock.connect(url))
        await warm(locks, nodes)
        async with partition(FaultJournal(0), [slow], Way.TO_SERVER):
            handle = await locks.acquire(key, ttl=LONG)
            assert await handle.release()
        await nobody_holds(nodes, key)


async def test_a_lost_vote_is_given_back_on_the_nodes_that_were_won(key: str) -> None:
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        for node in nodes.nodes[:2]:
            await node.command("SET", key, STRANGER)
        assert await locks.try_acquire(key, ttl=LONG) is None
        await nobody_else(nodes, key, STRANGER)
        with pytest.raises(AcquireTimeout):
            await locks.acquire(key, ttl=LONG, timeout=0.3)
        await nobody_else(nodes, key, STRANGER)


async def nobody_else(nodes: servers.RedisNodes, key: str, owner: str) -> None:
    async def only_theirs() -> bool:
        return {*await owners(nodes, key)} <= {owner, None}

    await eventually(only_theirs)


async def test_a_lease_that_ran_out_while_it_was_asked_for_is_not_granted(key: str) -> None:
    """Validity = TTL - elapsed - drift. All nodes say yes, but the client is frozen meanwhile."""
    ttl = 0.5
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        attempt = Freezable(locks.try_acquire(key, ttl=ttl))
        task = asyncio.ensure_future(_await(attempt))
        await asyncio.sleep(0)  # it has sent its requests and waits
        async with frozen_coroutine(FaultJournal(0), attempt):

            async def all_said_yes() -> bool:
                return await counters(nodes, key) == [1, 1, 1]

            await eventually(all_said_yes)
            await nobody_holds(nodes, key)  # the leases have run out
        assert await task is None


async def _await(attempt: Freezable[asyncdlock.Handle | None]) -> asyncdlock.Handle | None:
    return await attempt


async def test_a_cancelled_acquire_leaves_nothing_on_any_node(key: str) -> None:
    """Cancelled when every node has granted and no reply has arrived."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(servers.redis_nodes(3))
        links = [await stack.enter_async_context(open_link(node.address)) for node in nodes]
        url = "redlock://" + ",".join(link.address for link in links)
        locks: LockClient = await stack.enter_async_context(asyncdlock.connect(url))
        await warm(locks, nodes)
        async with partition(FaultJournal(0), links, Way.TO_CLIENT):
            task = asyncio.ensure_future(locks.acquire(key, ttl=LONG))

            async def granted_everywhere() -> bool:
                return all(await owners(nodes, key))

            await eventually(granted_everywhere)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await nobody_holds(nodes, key)


@pytest.mark.parametrize(("size", "dead"), [(4, 0), (5, 1)])
async def test_contention_is_no_failure_also_when_the_vote_is_decided_early(
    key: str, size: int, dead: int
) -> None:
    """Two quick refusals settle the vote; the nodes that answer later are slow, not silent."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(servers.redis_nodes(size))
        links = [await stack.enter_async_context(open_link(node.address)) for node in nodes]
        url = "redlock://" + ",".join(link.address for link in links)
        locks = await stack.enter_async_context(asyncdlock.connect(url))
        await warm(locks, nodes)
        for node in nodes:
            await node.command("SET", key, STRANGER)
        for number in range(dead):
            nodes[number].kill()
        for link in links[dead + 2 :]:
            link.lag(0.1)
        assert await locks.try_acquire(key, ttl=LONG) is None


async def test_a_wait_survives_a_moment_in_which_no_majority_answers(key: str) -> None:
    """A round that takes a tenth of the TTL is no verdict: a busy machine, a first connection, a pause.

    `redis://` bears a server that is away for two seconds; a majority should not be frailer.
    """
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        journal = FaultJournal(0)
        async with frozen_server(journal, nodes[0]), frozen_server(journal, nodes[1]):
            waiting = asyncio.ensure_future(locks.acquire(key, ttl=2.0))
            await asyncio.sleep(0.8)  # several rounds
        handle = await waiting
        assert await handle.release()
