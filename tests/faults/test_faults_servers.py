"""Crashes, clocks and failovers: what a server forgets, and what time it believes it is."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from harness import servers
from harness.faults import (
    FakeClock,
    FaultJournal,
    clock_jump,
    clock_rate,
    crashed_server,
    open_link,
    partition,
    promote_behind,
)
from harness.load.clock import now


@pytest.mark.parametrize(
    ("persistent", "wipe", "remembers"), [(False, False, False), (True, False, True), (True, True, False)]
)
async def test_a_crashed_server_comes_back_with_what_was_on_its_disk(
    persistent: bool, wipe: bool, remembers: bool
) -> None:
    journal = FaultJournal(now())
    async with servers.redis(persistent=persistent) as node:
        await node.command("SET", "k", "v")
        port = node.port
        first = node.pid
        async with crashed_server(journal, node, wipe=wipe):
            assert not node.running
        assert node.pid != first
        assert node.port == port
        assert bool(await node.command("EXISTS", "k")) is remembers
    (fault,) = journal.faults
    assert fault.details["data_lost"] is wipe
    assert fault.until is not None
    assert fault.until > fault.at


async def test_a_server_stays_down_when_the_body_fails() -> None:
    async with servers.redis() as node:
        with pytest.raises(RuntimeError):
            async with crashed_server(FaultJournal(0), node):
                raise RuntimeError
        assert not node.running


async def _offset(node: servers.RedisNode) -> float:
    """How far the server's clock is ahead of the true one."""
    asked = time.time()
    seconds, micros = await node.command("TIME")
    return int(seconds) + int(micros) / 1e6 - (asked + time.time()) / 2


@contextlib.asynccontextmanager
async def _server_with(clock: FakeClock) -> AsyncIterator[servers.RedisNode]:
    async with servers.redis(flavour="valkey", environment=clock.environment) as node:
        yield node


async def test_a_jump_moves_one_servers_clock_and_ends_its_leases() -> None:
    journal = FaultJournal(now())
    with FakeClock() as clock, FakeClock() as other:
        async with _server_with(clock) as node, _server_with(other) as untouched:
            for server in (node, untouched):
                await server.command("SET", "k", "v", "PX", 60_000)
            async with clock_jump(journal, clock, 120.0, who="node"):
                assert await _offset(node) == pytest.approx(120.0, abs=1.0)
                assert not await node.command("EXISTS", "k")
                assert await untouched.command("EXISTS", "k")
            assert await _offset(node) == pytest.approx(0.0, abs=1.0)
    assert journal.faults[0].details == {"who": "node", "seconds": 120.0}


async def test_a_jump_back_makes_a_lease_last_longer() -> None:
    with FakeClock(offset=600.0) as clock:
        async with _server_with(clock) as node:
            await node.command("SET", "k", "v", "PX", 1_000)
            async with clock_jump(FaultJournal(0), clock, -600.0, who="node"):
                assert await node.command("PTTL", "k") > 500_000


async def test_a_fast_clock_shortens_leases_and_a_slow_one_lengthens_them() -> None:
    with FakeClock(rate=4.0) as fast, FakeClock(rate=0.25) as slow:
        async with _server_with(fast) as hasty, _server_with(slow) as lazy:
            for server in (hasty, lazy):
                await server.command("SET", "k", "v", "PX", 2_000)
            began = time.monotonic()
            async with asyncio.timeout(30):
                while await hasty.command("EXISTS", "k"):
                    await asyncio.sleep(0.01)
            lasted = time.monotonic() - began
            assert lasted < 2.0 or not await lazy.command("EXISTS", "k")
            while time.monotonic() < began + 2.2:
                await asyncio.sleep(0.05)
            assert await lazy.command("EXISTS", "k")


async def test_a_change_of_rate_is_no_jump() -> None:
    journal = FaultJournal(now())
    with FakeClock() as clock:
        async with _server_with(clock) as node:
            await asyncio.sleep(1.0)
            began = time.monotonic()
            async with clock_rate(journal, clock, 10.0, node, who="node"):
                before = await _offset(node)
                passed = time.monotonic() - began
                await asyncio.sleep(0.5)
                gained = await _offset(node) - before
            after = await _offset(node)
            await asyncio.sleep(0.3)
            most = 3.0 + 9 * passed  # what the clock may have gained until it was read
            assert abs(before) < most, "ten times an age of a second would be nine seconds more"
            assert gained > 2.0
            assert await _offset(node) == pytest.approx(after, abs=0.5), "it stays where it was"
    assert journal.faults[0].details == {"who": "node", "rate": 10.0}


async def test_a_promoted_replica_has_missed_what_the_link_did_not_carry() -> None:
    journal = FaultJournal(now())
    async with servers.redis_replicated(1) as group:
        replica = group.replicas[0]
        async with open_link(group.primary.address, name="replication") as link:
            await group.follow(replica, link.address)
            await group.primary.command("SET", "before", "v")

            async def has_it() -> bool:
                return bool(await replica.command("EXISTS", "before"))

            await replica.until(has_it, "replication")
            async with partition(journal, [link]):
                await group.primary.command("SET", "after", "v")
                await promote_behind(journal, group, replica)
            assert not group.primary.running
            assert await replica.command("SET", "new", "v")
            assert await replica.command("EXISTS", "before", "after") == 1
    assert [fault.name for fault in journal.faults] == ["partition", "failover"]
