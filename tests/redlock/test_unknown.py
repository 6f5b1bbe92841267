"""redlock://: what a silent node leaves open is said to be open, and is neither "lost" nor "held"."""

import asyncio
from typing import Any

import pytest

import asyncdlock
from asyncdlock import QuorumError
from asyncdlock.types import Grant, LeaseState
from harness import servers
from harness.faults import FaultJournal, crashed_server, frozen_server
from tests.backends.support import claim
from tests.redlock.conftest import eventually, owners, warm

LONG = 60.0
SLOW: dict[str, Any] = {"node_timeout": 3.0, "request_timeout": 60.0}
"""A node that is not frozen answers within this, also on a busy machine."""


async def held_by_a_bare_majority(
    locks: asyncdlock.LockClient, nodes: servers.RedisNodes, key: str, *, ours: int
) -> Grant:
    """A grant of the first `ours` nodes; the others belong to somebody else."""
    await warm(locks, nodes)
    for node in nodes.nodes[ours:]:
        await node.command("SET", key, "somebody else")
    grant = await locks._backend.try_acquire(claim(key, LONG))
    assert grant is not None
    return grant


async def test_a_node_that_dies_before_the_release_does_not_make_the_lock_lost(key: str) -> None:
    async with (
        servers.redis_nodes(3, persistent=True) as nodes,
        asyncdlock.connect(nodes.url, **SLOW) as locks,
    ):
        await warm(locks, nodes)
        await nodes[2].command("SET", key, "somebody else")
        lost = locks._metrics.lost  # of all clients of this process
        async with locks.hold(key, ttl=LONG):
            nodes[1].kill()
        assert locks._metrics.lost == lost
        await nodes[1].start()


async def test_a_release_that_cannot_know_says_so_and_its_repetition_finds_out(key: str) -> None:
    async with (
        servers.redis_nodes(3, persistent=True) as nodes,
        asyncdlock.connect(nodes.url, **SLOW) as locks,
    ):
        grant = await held_by_a_bare_majority(locks, nodes, key, ours=2)
        async with crashed_server(FaultJournal(0), nodes[1]):
            with pytest.raises(QuorumError, match=f"{nodes[1].address}|whether") as caught:
                await locks._backend.release(grant.claim)
            assert not caught.value.definite
            assert await owners(nodes, key) == [None, "somebody else"]
        # One node has given back what it held, the other one still holds it: that was a majority.
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await locks._backend.release(grant.claim)
                    break
                except QuorumError:
                    await asyncio.sleep(0.05)  # it is not dialled for every request
        assert await owners(nodes, key) == [None, None, "somebody else"]
        assert not await locks._backend.release(grant.claim)


async def test_a_release_is_false_only_when_a_majority_was_certainly_not_held(key: str) -> None:
    async with servers.redis_nodes(5) as nodes, asyncdlock.connect(nodes.url, **SLOW) as locks:
        grant = await held_by_a_bare_majority(locks, nodes, key, ours=3)
        await nodes[0].command("DEL", key)
        async with frozen_server(FaultJournal(0), nodes[1]):
            assert not await locks._backend.release(grant.claim)


async def test_a_silent_node_is_not_taken_at_its_later_word(key: str) -> None:
    """It was frozen during the first release, which it carries out late: its "no" answers the second one."""
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url, **SLOW) as locks:
        grant = await held_by_a_bare_majority(locks, nodes, key, ours=2)
        async with frozen_server(FaultJournal(0), nodes[1]):
            with pytest.raises(QuorumError):
                await locks._backend.release(grant.claim)
        with pytest.raises(QuorumError) as caught:
            await locks._backend.release(grant.claim)
        assert not caught.value.definite
        assert await owners(nodes, key) == [None, None, "somebody else"]


@pytest.mark.parametrize(
    ("kept", "frozen", "expected"),
    [
        (5, 0, LeaseState.RENEWED),
        (3, 0, LeaseState.RENEWED),
        (2, 0, LeaseState.LOST),
        (1, 0, LeaseState.LOST),
        (0, 0, LeaseState.LOST),
        (5, 2, LeaseState.RENEWED),
        (5, 3, LeaseState.UNKNOWN),
        (4, 2, LeaseState.UNKNOWN),
        (2, 2, LeaseState.LOST),
    ],
)
async def test_a_renewal_needs_a_majority(key: str, kept: int, frozen: int, expected: LeaseState) -> None:
    """`kept` of five nodes still hold the lock, and `frozen` of those do not answer."""
    async with servers.redis_nodes(5) as nodes, asyncdlock.connect(nodes.url, **SLOW) as locks:
        await warm(locks, nodes)
        grant = await locks._backend.try_acquire(claim(key, LONG))
        other = await locks._backend.try_acquire(claim(f"{key}-other", LONG))
        assert grant is not None
        assert other is not None

        async def everywhere() -> bool:
            return await owners(nodes, key) == [grant.claim.owner] * 5

        await eventually(everywhere)
        for node in nodes.nodes[kept:]:
            await node.command("DEL", key)
        for node in nodes.nodes[:frozen]:
            node.pause()
        try:
            states = list(await locks._backend.renew([grant, other]))
        finally:
            for node in nodes.nodes[:frozen]:
                node.resume()
        assert states[0] is expected
        assert states[1] is (LeaseState.RENEWED if frozen < 3 else LeaseState.UNKNOWN)


async def test_a_release_waits_for_a_majority_that_is_late(key: str) -> None:
    """A stall of a tenth of the TTL is no verdict, and no lease is used up by waiting."""
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        grant = await locks._backend.try_acquire(claim(key, 2.0))
        assert grant is not None
        journal = FaultJournal(0)
        async with frozen_server(journal, nodes[0]), frozen_server(journal, nodes[1]):
            releasing = asyncio.ensure_future(locks._backend.release(grant.claim))
            await asyncio.sleep(0.5)  # longer than a node has
        assert await releasing
