"""redlock://: a request that is sent again never overtakes a later one of the same claim."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

import asyncdlock
from asyncdlock.backend import Backend
from asyncdlock.backends.redis.requests import ACQUIRE, RELEASE
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.types import LeaseState
from harness import servers
from harness.faults import FaultJournal, Link, Way, open_link, partition
from tests.backends.support import claim
from tests.redis_queue.support import STRANGER
from tests.redlock.conftest import counters, eventually, owners, warm

LONG = 600.0


@dataclass
class Quorum:
    """Three nodes, the last of them behind a link that can swallow its replies."""

    nodes: servers.RedisNodes
    link: Link
    backend: Backend

    async def knows_only(self, script: Script) -> None:
        """Let the last node have this script alone, as after a restart with one user of the lock."""
        await self.nodes[2].command("SCRIPT", "FLUSH")
        await self.nodes[2].command("SCRIPT", "LOAD", script.source)


@pytest.fixture
async def quorum() -> AsyncIterator[Quorum]:
    async with contextlib.AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(servers.redis_nodes(3))
        link = await stack.enter_async_context(open_link(nodes[2].address))
        url = f"redlock://{nodes[0].address},{nodes[1].address},{link.address}"
        locks = await stack.enter_async_context(asyncdlock.connect(url, node_timeout=30.0, call_timeout=60.0))
        await warm(locks, nodes)
        yield Quorum(nodes, link, locks._backend)


async def test_a_release_sent_again_does_not_delete_what_the_next_try_won(quorum: Quorum, key: str) -> None:
    """The first try loses, its release finds the script missing, and meanwhile the second try is granted."""
    nodes, mine = quorum.nodes, claim(key, LONG)
    await quorum.knows_only(ACQUIRE)
    for node in nodes.nodes[:2]:
        await node.command("SET", key, STRANGER)
    async with partition(FaultJournal(0), [quorum.link], Way.TO_CLIENT):
        assert await quorum.backend.try_acquire(mine) is None
        await nodes[0].command("DEL", key)
        trying = asyncio.ensure_future(quorum.backend.try_acquire(mine))

        async def asked_twice() -> bool:
            return (await counters(nodes, key))[2] == 2

        await eventually(asked_twice)
    grant = await trying
    assert grant is not None
    # The wire keeps order, so that whatever was sent again has been answered before this.
    assert list(await quorum.backend.renew([grant])) == [LeaseState.RENEWED]
    assert await owners(nodes, key) == [mine.owner, STRANGER, mine.owner]


async def test_an_acquire_sent_again_takes_nothing_after_its_release(quorum: Quorum, key: str) -> None:
    """Otherwise a node keeps a lock that nobody will give back before its TTL."""
    nodes, mine = quorum.nodes, claim(key, LONG)
    await quorum.knows_only(RELEASE)
    for node in nodes.nodes[:2]:
        await node.command("SET", key, STRANGER)
    async with partition(FaultJournal(0), [quorum.link], Way.TO_CLIENT):
        assert await quorum.backend.try_acquire(mine) is None
    probe = claim(f"{key}-probe", LONG)
    assert await quorum.backend.try_acquire(probe) is not None  # knocks at every node behind the rest

    async def everywhere() -> bool:
        return await owners(nodes, probe.key) == [probe.owner] * 3

    await eventually(everywhere)
    assert await owners(nodes, key) == [STRANGER, STRANGER, None]


async def test_a_script_that_a_node_has_forgotten_costs_no_vote(quorum: Quorum, key: str) -> None:
    mine = claim(key, LONG)
    await quorum.nodes[0].command("SET", key, STRANGER)  # so that each of the others counts
    for node in quorum.nodes:
        await node.command("SCRIPT", "FLUSH")
    grant = await quorum.backend.try_acquire(mine)
    assert grant is not None
    for node in quorum.nodes:
        await node.command("SCRIPT", "FLUSH")
    assert list(await quorum.backend.renew([grant])) == [LeaseState.RENEWED]
    for node in quorum.nodes:
        await node.command("SCRIPT", "FLUSH")
    assert await quorum.backend.release(mine)
