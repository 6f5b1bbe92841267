"""Full disks, leaders that die, clocks that end leases: what they do to servers, and what is noted of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from redis.exceptions import RedisError

import asyncdlock
from harness import servers
from harness.faults import (
    FakeClock,
    FaultJournal,
    full_disk,
    killed_leader,
    open_link,
    promoted_replica,
)
from harness.faults.accidents import AccidentFailed
from harness.faults.clock import clock_jump_of_leases
from harness.load.clock import now
from harness.resource.client import ResourceClient
from harness.resource.process import spawn
from harness.servers.catalogue import INSTALLATIONS

PATIENCE = 60.0
NANOSECONDS = 1_000_000_000


@pytest.fixture
def journal() -> FaultJournal:
    return FaultJournal(now())


async def refuses_to_write(node: servers.RedisNode) -> bool:
    """Redis that promised to have every write on disk before its reply ends instead."""
    try:
        await node.command("SET", "later", "v")
    except (RedisError, OSError):
        return True
    return False


async def test_a_redis_whose_disk_is_full_takes_nothing_and_comes_back_with_all_it_took(
    journal: FaultJournal,
) -> None:
    async with servers.redis(persistent=True) as node:
        await node.command("SET", "before", "v")
        async with full_disk(journal, node):
            assert await refuses_to_write(node)
        assert await node.command("GET", "before") == "v"
        assert await node.command("SET", "after", "v")
    (fault,) = journal.faults
    assert fault.name == "disk full"
    assert "frees" not in fault.details, "it excuses nothing"


@pytest.mark.parametrize("backend", ["etcd", "zookeeper"])
async def test_locks_are_to_be_had_again_once_there_is_room(backend: str, journal: FaultJournal) -> None:
    async with INSTALLATIONS[backend].start(tuned=True) as server:
        async with asyncdlock.connect(server.url) as client:
            first = await client.acquire("k", timeout=PATIENCE)
            await first.release()
            async with full_disk(journal, server.nodes[0]):
                with pytest.raises((asyncdlock.LockError, TimeoutError)):
                    async with asyncio.timeout(3.0):
                        await client.acquire("k")
            later = await client.acquire("k", timeout=PATIENCE)
            assert later.fence > first.fence


async def test_a_resource_whose_disk_is_full_accepts_nothing_and_forgets_nothing(
    journal: FaultJournal,
) -> None:
    async with spawn() as resource, ResourceClient(resource.url) as client:
        assert (await client.put("k", fence=7, owner="a")).write == "accepted"
        async with full_disk(journal, resource):
            assert (await client.put("k", fence=8, owner="b")).write != "accepted"
        assert (await client.put("k", fence=6, owner="c")).write == "stale"
        assert (await client.put("k", fence=9, owner="d")).write == "accepted"


async def test_where_the_limit_cannot_be_set_nothing_is_noted(
    journal: FaultJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("psutil.Process.rlimit")
    async with servers.redis() as node:
        with pytest.raises(AccidentFailed, match="cannot be filled here"):
            async with full_disk(journal, node):
                raise AssertionError("unreachable")
    assert not journal.faults


@pytest.fixture(params=["etcd", "zookeeper"])
async def quorum(
    request: pytest.FixtureRequest,
) -> AsyncIterator[servers.EtcdCluster | servers.ZooKeeperEnsemble]:
    async with AsyncExitStack() as stack:
        if request.param == "etcd":
            yield await stack.enter_async_context(servers.etcd(3, heartbeat_ms=50, election_ms=500))
        else:
            yield await stack.enter_async_context(servers.zookeeper(3))


async def test_when_the_leader_is_killed_another_leads_and_no_lock_is_lost(
    quorum: servers.EtcdCluster | servers.ZooKeeperEnsemble, journal: FaultJournal
) -> None:
    async with asyncdlock.connect(quorum.url) as client:
        first = await client.acquire("k", ttl=30.0, timeout=PATIENCE)
        leader = await quorum.leader()
        async with killed_leader(journal, quorum.nodes):
            assert not leader.running
            assert await quorum.leader() is not leader
            assert (await client.inspect("k")).held
        leader.check()
        await first.release()
        assert (await client.acquire("k", timeout=PATIENCE)).fence > first.fence
    (fault,) = journal.faults
    assert "frees" not in fault.details, "it excuses nothing"


async def test_a_replica_takes_over_and_the_primary_comes_back(journal: FaultJournal) -> None:
    async with servers.redis_replicated(1, persistent=True) as group:
        primary, (replica,) = group.primary, group.replicas
        async with open_link(primary.address) as link:
            async with asyncdlock.connect(f"redis://{link.address}/0", call_timeout=1.0) as client:
                async with promoted_replica(journal, group.nodes, [link], trusted_after=0.2):
                    assert not primary.running
                    handle = await client.acquire("k", ttl=30.0, timeout=PATIENCE)
                    assert await replica.command("GET", "k") == handle.owner
                assert await primary.command("GET", "k") == handle.owner
                assert await replica.replicates()
                assert await handle.release()
    (fault,) = journal.faults
    assert fault.affects("frees", "k")
    assert fault.affects("forgets", "k")


async def test_a_jump_of_the_clock_frees_locks_until_a_ttl_after_it_is_right_again(
    journal: FaultJournal,
) -> None:
    with FakeClock() as clock:
        async with servers.redis(flavour="valkey", environment=clock.environment) as node:
            async with clock_jump_of_leases(journal, clock, -60.0, who="node", trusted_after=0.3):
                await node.command("SET", "k", "v", "PX", 30_000)
                right_again = now()
            assert not await node.command("EXISTS", "k"), "the way back is a jump ahead"
    (fault,) = journal.faults
    assert fault.affects("frees", "k")
    assert fault.until is not None
    assert fault.until + journal.origin - right_again > 0.25 * NANOSECONDS
