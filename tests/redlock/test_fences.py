"""redlock://: fences rise because a majority remembers the highest before it is used."""

import asyncio

import pytest

import asyncdlock
from asyncdlock import QuorumError
from harness import servers
from harness.faults import FaultJournal, crashed_server, frozen_server
from tests.redlock.conftest import PATIENCE, counters, eventually, nobody_holds, owners, set_counters, warm

LONG = 60.0


async def take(url: str, key: str) -> int:
    """The fence that a client gets which has never seen one of this key."""
    async with asyncdlock.connect(url) as locks:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    handle = await locks.acquire(key, ttl=LONG)
                except QuorumError:  # connecting took longer than a node may take
                    continue
                await handle.release()
                return handle.fence


async def test_the_highest_counter_is_written_back_before_the_grant_returns(key: str) -> None:
    """Counters (10, 1, 1): A and B give 10; then B and C alone must not give less."""
    async with servers.redis_nodes(3) as nodes:
        a, _, c = sorted(nodes, key=lambda node: node.port)
        for node in nodes:
            await node.command("SET", f"fence:{{{key}}}", 9 if node is a else 0)
        journal = FaultJournal(0)
        async with frozen_server(journal, c):
            first = await take(nodes.url, key)
        await nobody_holds(nodes, key)
        async with frozen_server(journal, a):
            second = await take(nodes.url, key)
        assert second > first


async def test_a_grant_is_stored_by_a_majority(key: str) -> None:
    async with servers.redis_nodes(5) as nodes:
        await set_counters(nodes, key, [40, 3, 2, 1, 0])
        async with asyncdlock.connect(nodes.url) as locks:
            await warm(locks, nodes)
            for _ in range(3):
                handle = await locks.acquire(key, ttl=LONG)
                stored = await counters(nodes, key)
                counter = handle.fence // 16
                assert sum(value >= counter for value in stored) >= 3, (handle.fence, stored)
                await handle.release()


@pytest.mark.parametrize("highest", [0, 1, 2])
async def test_a_fence_names_its_node_whatever_the_order_in_the_url(key: str, highest: int) -> None:
    """Two clients that number the nodes differently could hand out the same fence."""
    async with servers.redis_nodes(3) as nodes:
        in_order = sorted(nodes, key=lambda node: (node.host, node.port))
        await in_order[highest - 1].command("SET", key, "somebody else")  # so that both others are needed
        for turn in range(3):
            spelled = [*nodes.nodes[turn:], *nodes.nodes[:turn]]
            async with asyncdlock.connect("redlock://" + ",".join(node.address for node in spelled)) as locks:
                await warm(locks, nodes)
                await set_counters(nodes, key, [0, 0, 0])
                await in_order[highest].command("SET", f"fence:{{{key}}}", 40 + turn)
                handle = await locks.acquire(key, ttl=LONG)
                assert handle.fence == (41 + turn) * 16 + highest
                assert await handle.release()


async def test_fences_rise_over_any_sequence_of_majorities(key: str) -> None:
    """Each acquisition loses another pair of five nodes."""
    async with servers.redis_nodes(5) as nodes:
        journal = FaultJournal(0)
        fences = []
        for first in range(5):
            second = (first + 2) % 5
            async with frozen_server(journal, nodes[first]), frozen_server(journal, nodes[second]):
                fences.append(await take(nodes.url, key))
            await nobody_holds(nodes, key)
        assert fences == sorted(set(fences)), fences


async def test_persistent_nodes_keep_lock_and_counter_over_kill_and_restart(key: str) -> None:
    async with servers.redis_nodes(3, persistent=True) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        held = await locks.acquire(key, ttl=LONG)

        async def everywhere() -> bool:
            return await owners(nodes, key) == [held.owner] * 3

        await eventually(everywhere)
        for node in nodes:
            async with crashed_server(FaultJournal(0), node):
                pass
        async with asyncdlock.connect(nodes.url) as others:
            assert await others.try_acquire(key, ttl=LONG) is None
        assert await held.release()
        await nobody_holds(nodes, key)
        assert await take(nodes.url, key) > held.fence


async def test_a_node_that_forgets_admits_a_second_holder(key: str) -> None:
    """What Redlock does not promise: a restart without persistence takes the node's vote back."""
    async with servers.redis_nodes(3) as nodes:
        _, b, c = nodes
        journal = FaultJournal(0)
        async with asyncdlock.connect(nodes.url) as first, asyncdlock.connect(nodes.url) as second:
            await warm(first, nodes)
            await warm(second, nodes)
            await c.command("SET", key, "somebody else")  # C's vote is not A's
            held = await first.acquire(key, ttl=LONG)
            await c.command("DEL", key)
            assert await second.try_acquire(key, ttl=LONG) is None
            async with crashed_server(journal, b):
                pass
            other = await second.acquire(key, ttl=LONG)
            assert held.held
            assert other.held
            assert await owners(nodes, key) == [held.owner, other.owner, other.owner]
            await other.release()


async def test_fences_that_went_back_are_lifted_above_what_the_resource_has_seen(key: str) -> None:
    """All nodes forget: a new client's fence is low, until it is told what the resource has seen."""
    async with servers.redis_nodes(3) as nodes:
        for _ in range(3):
            seen = await take(nodes.url, key)
        for node in nodes:
            async with crashed_server(FaultJournal(0), node):
                pass
        assert await take(nodes.url, key) < seen
        async with asyncdlock.connect(nodes.url) as locks:
            await warm(locks, nodes)
            await locks.raise_fence(key, above=seen)
            handle = await locks.acquire(key, ttl=LONG)
            assert handle.fence > seen
            await handle.release()


async def test_a_client_notices_by_itself_that_its_fences_went_back(key: str) -> None:
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        for _ in range(3):
            handle = await locks.acquire(key, ttl=LONG)
            await handle.release()
        await nobody_holds(nodes, key)
        for node in nodes:
            async with crashed_server(FaultJournal(0), node):
                pass

        again = await locks.acquire(key, ttl=LONG)
        assert again.fence > handle.fence
        await again.release()
