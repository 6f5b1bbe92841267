"""Local hand-off: a bounded number in a row, one fence each, never out of a lease that is in doubt."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import asyncdlock
from harness.servers import RedisNode
from tests.redis_queue.contender import Contender, Held
from tests.redis_queue.support import (
    PATIENT,
    STRANGER,
    hold_in_turn,
    queue_log,
    queue_url,
    until_clean,
    until_waiting,
    waiters,
)

HANDOFFS = 16
BLOCK = HANDOFFS + 1
"""Sections under one remote grant: the one that it was for, and the hand-offs."""


def by_fence(processes: list[Contender]) -> list[Held]:
    return sorted((held for process in processes for held in process.grants), key=lambda held: held.fence)


def exclusive_and_in_order(sections: list[Held]) -> None:
    for earlier, later in pairwise(sections):
        assert earlier.fence < later.fence, "no fence twice"
        assert earlier.until <= later.at, "nobody enters before the holder of every smaller fence has left"


async def test_other_processes_wait_for_at_most_so_many_handoffs(one_node: RedisNode) -> None:
    """Judged by the order of grants that the server and the holders recorded."""
    count, waiting, rounds = 3, 30, 20
    async with (
        queue_log(one_node, "hot") as log,
        Contender.several(
            count, one_node, "hot", waiters=waiting, rounds=rounds, local_handoffs=HANDOFFS
        ) as processes,
    ):
        for process in processes:
            process.go()
        for process in processes:
            await process.done()
        await until_clean(one_node)
    sections = by_fence(processes)
    assert len(sections) == count * waiting * rounds
    exclusive_and_in_order(sections)

    # Every remote grant takes a block of fences, so the fence of a section tells under which it ran.
    sections_of_grant = Counter((held.fence - 1) // BLOCK for held in sections)
    assert max(sections_of_grant.values()) <= BLOCK
    assert len(sections_of_grant) <= len(log.granted)
    assert len(sections) / len(log.granted) > 2, "most were handed over without the server"

    # Whoever joins the queue of the server is served after at most one grant to each other process.
    passed: dict[str, int] = {}
    for event, owner in log.events:
        if event == "joined":
            passed[owner] = 0
        else:
            assert passed.pop(owner, 0) <= count - 1
            for other in passed:
                passed[other] += 1
    assert not passed, "nobody was left"


@pytest.mark.parametrize(("ttl", "turn"), [(10.0, 0.1), (0.5, 0.05)])
async def test_other_processes_wait_for_at_most_a_short_turn_and_a_section(
    one_node: RedisNode, ttl: float, turn: float
) -> None:
    """However many hand-offs are allowed: after a tenth of a second, or of the TTL, others have a turn."""
    handoffs = 100_000
    work: dict[str, Any] = {"ttl": ttl, "hold": 0.005, "local_handoffs": handoffs}
    async with (
        Contender.started(one_node, "k", waiters=10, rounds=handoffs, **work) as busy,
        Contender.started(one_node, "k", waiters=1, rounds=2, **work) as other,
    ):
        busy.go()
        await busy.until(lambda: len(busy.grants) > 20)
        other.go()
        await other.done()
        assert len(other.grants) == 2
        grants = list(busy.grants)
    last_turn = max(held.at for held in other.grants)
    under_one_grant: dict[int, list[Held]] = {}
    for held in grants:
        if held.until < last_turn:
            under_one_grant.setdefault((held.fence - 1) // (handoffs + 1), []).append(held)
    assert len(under_one_grant) >= 2, "one before each turn of the other process"
    for sections in under_one_grant.values():
        # Each but the last was handed on at its end. The turn began before the first section did.
        over = sections[0].at + turn * 1e9
        assert all(held.until <= over for held in sections[:-1])


async def test_one_remote_place_per_process_serves_all_its_waiters(node: RedisNode) -> None:
    async with asyncdlock.connect(queue_url(node), local_handoffs=1000) as client:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 500) as tasks:
            await until_waiting(node, "k", 1)
            before = client._backend.commands
            await node.command("DEL", "k")
            served = await hold_in_turn(tasks)
            assert client._backend.commands - before < 25, "500 sections on a handful of commands"
        fences = [handle.fence for handle in served]
        assert fences == sorted(set(fences))
        assert len({handle.owner for handle in served}) == 500
        await until_clean(node)


@pytest.mark.faults
async def test_fences_of_a_block_are_never_used_again_when_its_process_is_killed(
    one_node: RedisNode,
) -> None:
    """Killed in the middle of a block: what it had not used of it is lost, not handed out."""
    work: dict[str, Any] = {"waiters": 10, "ttl": 1.0, "hold": 0.002, "local_handoffs": 64}
    async with (
        Contender.started(one_node, "k", rounds=100_000, **work) as doomed,
        Contender.started(one_node, "k", rounds=30, **work) as survivor,
    ):
        doomed.go()
        await doomed.until(lambda: len(doomed.grants) > 100)
        survivor.go()
        await survivor.until(lambda: len(survivor.grants) > 20)
        await doomed.until(lambda: bool(doomed.holding))
        await doomed.kill()
        await survivor.done()
        assert len(survivor.grants) == 300
        used = [held.fence for held in (*doomed.grants, *survivor.grants)]
        used += [fence for fence in doomed.holding.values() if fence not in used]
        assert len(used) == len(set(used))
        last_of_doomed = max(held.fence for held in doomed.grants)
        after = [held for held in survivor.grants if held.fence > last_of_doomed]
        assert after, "the survivor went on"
        exclusive_and_in_order(by_fence([doomed, survivor]))


@pytest.mark.faults
async def test_a_block_whose_lease_ended_meanwhile_is_given_up(one_node: RedisNode) -> None:
    """Frozen in the middle of a block for longer than its TTL; the others go on; then it wakes."""
    work: dict[str, Any] = {"waiters": 10, "ttl": 1.0, "hold": 0.002, "local_handoffs": 10_000}
    async with (
        Contender.started(one_node, "k", rounds=60, **work) as sleeper,
        Contender.started(one_node, "k", rounds=20, **work) as other,
    ):
        sleeper.go()
        await sleeper.until(lambda: len(sleeper.grants) > 20)
        sleeper.pause()
        before = max(held.fence for held in sleeper.grants)
        other.go()
        await other.until(lambda: len(other.grants) > 100)
        sleeper.resume()
        await asyncio.wait_for(asyncio.gather(sleeper.done(), other.done()), PATIENT)
        assert len(sleeper.grants) + len(sleeper.failures) == 600
        assert len(other.grants) == 200
        assert min(held.fence for held in other.grants) > before
        entries = sorted((*sleeper.grants, *other.grants), key=lambda held: held.at)
        assert [held.fence for held in entries] == sorted(held.fence for held in entries), (
            "whoever entered later has the larger fence: nothing of the old block was handed out"
        )


async def test_a_lease_that_was_lost_on_the_server_is_not_handed_over(node: RedisNode) -> None:
    """A renewal finds that the lock is another's: the next local waiter asks the server."""
    async with asyncdlock.connect(queue_url(node), local_handoffs=1000) as client:
        holder = await client.acquire("k", ttl=60.0)
        async with waiters(client, "k", 3, ttl=60.0) as tasks:
            await asyncio.sleep(0)
            await node.command("SET", "k", "a stranger", "PX", 300)
            with pytest.raises(asyncdlock.LockLost):
                await holder.renew()
            await holder.release()
            served = await hold_in_turn(tasks)
        assert all(handle.fence > holder.fence + 1000 for handle in served), "out of a new block"
        await until_clean(node)
