"""?topology=cluster: every lock on the node of its slot; sharded messages; moves and failovers."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster as RedisPyCluster

import asyncdlock
from asyncdlock import Handle, LockClient
from asyncdlock.backends.redis.keys import client_key, fence_key
from asyncdlock.types import SESSION_CHARS, Claim, LeaseState
from harness import servers
from harness.servers import RedisCluster, RedisNode
from harness.servers.redis_node import Flavour
from tests.conftest import _started
from tests.redis_queue.support import (
    PATIENT,
    backend_of,
    eventually,
    hold_in_turn,
    until_waiting,
    waiters,
)
from tests.topology.contention import Contention
from tests.topology.slots import Migration

SCHEMES = pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
KEYS = [f"account:{number}" for number in range(40)]


@pytest.fixture(scope="module", params=["redis", "valkey"])
def shared(request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """Three shards for the tests of this file that leave them whole."""
    flavour: Flavour = request.param
    with _started(servers.redis_cluster(flavour=flavour)) as cluster:
        yield cluster


@pytest.fixture
async def stored(shared: RedisCluster) -> AsyncIterator[RedisPyCluster]:
    """What the cluster stores, seen by redis-py."""
    async with RedisPyCluster(host=shared[0].host, port=shared[0].port, decode_responses=True) as client:
        yield client


def client_of(cluster: RedisCluster, scheme: str = "redis-queue", **options: Any) -> LockClient:
    url = scheme + cluster.url[len("redis") :]
    return asyncdlock.connect(url, **options)


def fifo(cluster: RedisCluster, **options: Any) -> LockClient:
    return client_of(cluster, local_handoffs=0, **options)


@SCHEMES
async def test_locks_on_every_shard(shared: RedisCluster, stored: RedisPyCluster, scheme: str) -> None:
    shards = {repr(stored.get_node_from_key(key)) for key in KEYS}
    assert len(shards) == 3
    async with client_of(shared, scheme) as one, client_of(shared, scheme) as two:
        handles = await asyncio.gather(*(one.acquire(key) for key in KEYS))
        assert [await two.try_acquire(key) for key in KEYS] == [None] * len(KEYS)
        for key, handle in zip(KEYS, handles, strict=True):
            assert await stored.get(key) == handle.owner
            assert int(await stored.get(fence_key(key)) or 0) >= handle.fence
        assert all(await asyncio.gather(*(handle.release() for handle in handles)))
        again = await asyncio.gather(*(two.acquire(key) for key in KEYS))
        assert all(new.fence > old.fence for new, old in zip(again, handles, strict=True))
        await asyncio.gather(*(handle.release() for handle in again))


@pytest.mark.parametrize("kind", ["per-shard", "expiring"])
@SCHEMES
async def test_counters_that_do_not_stay_lie_in_the_slots_of_their_keys(
    shared: RedisCluster, scheme: str, kind: str
) -> None:
    options: dict[str, Any] = {"fence_counter": kind, "prefix": f"{kind}-{scheme}:"}
    async with client_of(shared, scheme, **options) as one, client_of(shared, scheme, **options) as two:
        handles = await asyncio.gather(*(one.acquire(key) for key in KEYS))
        assert sorted([key async for key in two.keys()]) == sorted(KEYS)  # noqa: SIM118 - not a mapping
        await asyncio.gather(*(handle.renew() for handle in handles))
        await asyncio.gather(*(handle.release() for handle in handles))
        await asyncio.gather(*(two.raise_fence(handle.key, above=handle.fence + 1000) for handle in handles))
        again = await asyncio.gather(*(two.acquire(key) for key in KEYS))
        assert all(new.fence > old.fence + 1000 for new, old in zip(again, handles, strict=True))
        assert all(await asyncio.gather(*(one.force_release(key) for key in KEYS)))


@pytest.mark.parametrize(
    "key",
    [
        *("plain", "{tag}:rest", "a{tag}b", "{a}{b}", "{}empty", "a{b", "a}b", "}{", "{{x}}", "ключ {тег}"),
        *("a b", "{tag}", "{}", "fence:{tag}", "tagged:{tag}", "escaped:{a%7Db}"),
    ],
)
async def test_keys_with_braces_keep_lock_and_companions_in_one_slot(shared: RedisCluster, key: str) -> None:
    """Whatever the key: each of its verbs is one script, which a cluster runs within one slot only."""
    async with fifo(shared) as one, fifo(shared) as two:
        holder = await one.acquire(key)
        async with waiters(two, key, 2) as tasks:
            await asyncio.sleep(0.05)
            await holder.renew()
            await holder.release()
            served = await hold_in_turn(tasks)
        assert [handle.fence for handle in served] == [holder.fence + 1, holder.fence + 2]


async def test_waiters_are_served_in_order_and_told_by_sharded_messages(shared: RedisCluster) -> None:
    node = await shared.primary_of("hot")
    async with fifo(shared, patience=600.0) as one, fifo(shared, patience=600.0) as two:
        holder = await one.acquire("hot", ttl=600.0)
        async with waiters(one, "hot", 10) as mine, waiters(two, "hot", 10) as theirs:
            queued = await until_waiting(node, "hot", 20)
            assert len(await node.command("PUBSUB", "SHARDCHANNELS")) == 2, "one channel per process"
            assert await node.command("PUBSUB", "CHANNELS") == [], "nothing is broadcast to every node"
            await holder.release()
            served = await hold_in_turn([*mine, *theirs])
        assert [handle.owner for handle in served] == queued

        async def no_channels() -> bool:
            return bool(await node.command("PUBSUB", "SHARDCHANNELS") == [])

        await eventually(no_channels, "channels of a key that nobody waits for any more are left")
        assert await node.command("EXISTS", "queue:{hot}", "sessions:{hot}", "hot") == 0


async def test_shared_locks_and_permits(shared: RedisCluster) -> None:
    """On every shard: readers wait for a writer and go in together, permits go round, leases are renewed."""
    async with client_of(shared) as one, client_of(shared) as two:

        async def read(client: asyncdlock.LockClient, key: str) -> asyncdlock.Handle:
            return await client.acquire(key, shared=True, ttl=600.0, timeout=60.0)

        for number in range(6):
            key = f"doc:{number}"
            node = await shared.primary_of(key)
            writer = await one.acquire(key, ttl=600.0)
            reading = [asyncio.create_task(read(client, key)) for client in (one, two, two)]
            await until_waiting(node, key, 3)
            assert await writer.release()
            readers = await asyncio.gather(*reading)
            assert await two.try_acquire(f"{key}-other") is not None
            for reader in readers:
                await reader.renew()
                assert reader.fence > writer.fence
            assert await asyncio.create_task(one.try_acquire(key)) is None
            for reader in readers:
                assert await reader.release()
            assert await node.command("EXISTS", key, f"holders:{{{key}}}", f"queue:{{{key}}}") == 0
            permits = [await client.semaphore(key, permits=2).acquire() for client in (one, two)]
            third = asyncio.create_task(two.semaphore(key, permits=2).acquire(timeout=60.0))
            await until_waiting(node, key, 1)
            assert await permits[0].release()
            for permit in (await third, permits[1]):
                assert await permit.release()


@pytest.mark.parametrize("handoffs", [0, 256])
async def test_no_channel_outlasts_those_who_waited(shared: RedisCluster, handoffs: int) -> None:
    """Also when the lock was granted, or the wait given up, before the queue was joined."""

    async def channels() -> int:
        return sum([len(await node.command("PUBSUB", "SHARDCHANNELS")) for node in shared.primaries])

    chance = random.Random(1)
    async with client_of(shared, local_handoffs=handoffs) as one, client_of(shared) as two:
        for number in range(200):
            key = f"job:{number}"
            holder = await two.acquire(key, ttl=600.0)
            asking = asyncio.create_task(one.acquire(key, ttl=600.0))
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                asking.cancel()
            await asyncio.sleep(chance.random() * 0.001)
            await holder.release()
            await asyncio.wait([asking])
            if not asking.cancelled():
                await (await asking).release()

        async def none() -> bool:
            return await channels() == 0

        await eventually(none, "no channel is subscribed")


async def test_waiters_come_and_go_on_many_keys_at_once(shared: RedisCluster) -> None:
    """Channels are opened and closed all the time; nobody is told in vain for good."""
    async with fifo(shared) as one, fifo(shared) as two:
        served = 0

        async def contend(client: LockClient, key: str) -> None:
            nonlocal served
            for _ in range(10):
                async with client.hold(key, ttl=600.0, timeout=PATIENT):
                    served += 1
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as everybody:
            for key in KEYS[:8]:
                for client in (one, two, one, two):
                    everybody.create_task(contend(client, key))
        assert served == 8 * 4 * 10


async def test_many_locks_over_many_slots_renew_together(
    shared: RedisCluster, stored: RedisPyCluster
) -> None:
    keys = [f"renewed:{number}" for number in range(300)]
    async with client_of(shared) as client:
        handles = await asyncio.gather(*(client.acquire(key, ttl=600.0) for key in keys))
        for key in keys:
            await stored.pexpire(key, 60_000)
        taken = keys[7]
        await stored.set(taken, "a stranger")
        states = await client._backend.renew([handle._holding.grant for handle in handles])
        for key, state in zip(keys, states, strict=True):
            assert state is (LeaseState.LOST if key == taken else LeaseState.RENEWED)
            assert await stored.pttl(key) > 500_000 or key == taken
        released = await asyncio.gather(*(handle.release() for handle in handles))
        assert released.count(False) == 1
        await stored.delete(taken)


@pytest.mark.faults
@SCHEMES
async def test_contention_goes_on_while_its_slot_moves_to_and_fro(shared: RedisCluster, scheme: str) -> None:
    """MOVED and ASK, with keys on both sides for a while: no error, no fence twice, nobody left behind."""
    key = f"moving {scheme}"
    async with client_of(shared, scheme, local_handoffs=0) as one, client_of(shared, scheme) as two:
        contentions = [Contention(one, key), Contention(two, key)]
        async with contentions[0].running(4), contentions[1].running(4):
            for _ in range(3):
                migration = await Migration.of_key(shared, key)
                await migration.begin()
                for _ in range(3):
                    await migration.move_keys()
                    await asyncio.sleep(0.05)
                await migration.finish()
                for contention in contentions:
                    await contention.goes_on()
        for contention in contentions:
            assert contention.failures == []
        fences = [fence for contention in contentions for fence in contention.fences]
        assert len(fences) == len(set(fences))


@pytest.mark.faults
async def test_waiters_are_found_by_the_node_that_took_their_slot_over(shared: RedisCluster) -> None:
    """The queue moves with the slot; the subscriptions do not, and are made again."""
    async with fifo(shared) as one, fifo(shared) as two:
        holder = await one.acquire("parked", ttl=600.0)
        async with waiters(one, "parked", 5) as mine, waiters(two, "parked", 5) as theirs:
            node = await shared.primary_of("parked")
            queued = await until_waiting(node, "parked", 10)
            migration = await Migration.of_key(shared, "parked")
            await migration.begin()
            await migration.finish()
            assert await until_waiting(migration.target, "parked", 10) == queued

            async def subscribed() -> bool:
                return len(await migration.target.command("PUBSUB", "SHARDCHANNELS")) == 2

            await eventually(subscribed, "both processes listen to the new node")
            assert await holder.release()
            served = await hold_in_turn([*mine, *theirs])
        assert [handle.owner for handle in served] == queued


@pytest.mark.faults
async def test_single_keys_follow_an_ask(shared: RedisCluster) -> None:
    """Renewal and release of a lock whose slot is on its way: half here, half there."""
    async with client_of(shared, "redis") as client:
        handle = await client.acquire("asked", ttl=600.0)
        migration = await Migration.of_key(shared, "asked")
        await migration.begin()
        await migration.move_keys()
        await handle.renew()
        await client.raise_fence("asked", above=1000)
        assert await handle.release()
        await migration.finish()
        again = await client.acquire("asked")
        assert again.fence > 1000
        await again.release()


async def renewed_while_silent(node: RedisNode, client: LockClient, handles: list[Handle]) -> set[str]:
    """The keys whose renewal is confirmed while `node` is frozen; of the others nothing is known."""
    node.pause()
    try:
        async with asyncio.timeout(PATIENT / 2):
            states = await client._backend.renew([handle._holding.grant for handle in handles])
    finally:
        node.resume()
    assert set(states) == {LeaseState.RENEWED, LeaseState.UNKNOWN}
    return {handle.key for handle, state in zip(handles, states, strict=True) if state is LeaseState.RENEWED}


@SCHEMES
async def test_a_silent_shard_takes_no_locks_of_the_others_along(shared: RedisCluster, scheme: str) -> None:
    """All that is due at the same time is renewed together, whichever shard it is on."""
    keys = [f"silent:{number}" for number in range(40)]
    frozen = await shared.primary_of(keys[0])
    living = {key for key in keys if await shared.primary_of(key) is not frozen}
    async with client_of(shared, scheme, request_timeout=PATIENT) as client:
        handles = await asyncio.gather(*(client.acquire(key, ttl=3.0, renew=False) for key in keys))
        assert await renewed_while_silent(frozen, client, handles) == living


@SCHEMES
async def test_a_silent_shard_hides_the_label_of_a_holder_and_no_more(
    shared: RedisCluster, scheme: str
) -> None:
    """What a client tells of itself may lie on another shard than its locks."""
    async with (
        client_of(shared, scheme) as holder,
        client_of(shared, scheme, request_timeout=PATIENT) as other,
    ):
        handles = await asyncio.gather(
            *(holder.acquire(f"silent:{number}", ttl=60.0) for number in range(40))
        )
        frozen = await shared.primary_of(client_key(handles[0].owner[:SESSION_CHARS]))
        seen, *_ = [handle for handle in handles if await shared.primary_of(handle.key) is not frozen]
        assert (await other.inspect(seen.key)).label == seen.label
        frozen.pause()
        try:
            async with asyncio.timeout(PATIENT / 2):
                info = await other.inspect(seen.key)
        finally:
            frozen.resume()
        assert (info.held, info.owner, info.label) == (True, seen.owner, None)


async def test_readers_and_writers_on_a_silent_shard_do_not_hold_up_each_other(shared: RedisCluster) -> None:
    """Each are renewed by a script of their own."""
    keys = [f"silent:{number}" for number in range(40)]
    frozen = await shared.primary_of(keys[0])
    living, *_ = [key for key in keys if await shared.primary_of(key) is not frozen]
    async with client_of(shared, request_timeout=PATIENT) as client:
        for read, written in ((keys[0], living), (living, keys[0])):
            handles = [
                await client.acquire(read, shared=True, ttl=3.0, renew=False),
                await client.acquire(written, ttl=3.0, renew=False),
            ]
            assert await renewed_while_silent(frozen, client, handles) == {living}
            await asyncio.gather(*(handle.release() for handle in handles))


@pytest.fixture
async def replicated() -> AsyncIterator[RedisCluster]:
    """Three shards with a replica each, of this test's own."""
    async with servers.redis_cluster(replicas=1, node_timeout_ms=1000) as cluster:
        yield cluster


@pytest.mark.faults
@SCHEMES
async def test_a_shard_that_fails_over_is_found_again(replicated: RedisCluster, scheme: str) -> None:
    """Locks of other shards do not notice; those of the failed one go on when a replica took over."""
    key = "k"
    failing = await replicated.primary_of(key)
    elsewhere, *_ = [other for other in KEYS if await replicated.primary_of(other) is not failing]
    async with client_of(replicated, scheme, local_handoffs=0) as client:
        here, there = Contention(client, key), Contention(client, elsewhere)
        async with here.running(4), there.running(4):
            await here.goes_on()
            await there.goes_on()
            failing.kill()
            await there.goes_on()
            await here.goes_on()
        assert not there.failures
        here.failed_clearly()
        assert here.fences == sorted(set(here.fences))


async def replicated_so_far(primary: RedisNode, key: str) -> None:
    """A replica has all that was written to `primary`: WAIT looks at the writes of its own connection."""
    async with Redis.from_url(primary.url, single_connection_client=True) as client:
        await client.set(f"{{{key}}}:written last", "")
        assert await client.wait(1, 30_000) == 1


@pytest.mark.faults
async def test_waiters_whose_shard_fails_over_wait_on_in_their_places(replicated: RedisCluster) -> None:
    """Who waited listens again, and who comes meanwhile listens first, as soon as a replica took over."""
    failing = await replicated.primary_of("k")
    async with fifo(replicated, patience=PATIENT) as one, fifo(replicated, patience=PATIENT) as two:
        holder = await one.acquire("k", ttl=600.0)
        async with waiters(one, "k", 5, ttl=600.0) as mine, waiters(two, "k", 5, ttl=600.0) as theirs:
            queued = await until_waiting(failing, "k", 10)
            await replicated_so_far(failing, "k")
            failing.kill()
            by_session = {claim.session: claim for claim in (Claim("k", owner, 600.0) for owner in queued)}
            ours = by_session.pop(holder._holding.grant.claim.session)
            (others,) = by_session.values()
            async with waiters(two, "k", 3, ttl=600.0) as late, asyncio.timeout(PATIENT):
                await backend_of(one)._messages.listen(ours)
                await backend_of(two)._messages.listen(others)
                assert await holder.release()
                served = await hold_in_turn([*mine, *theirs, *late])
        assert [handle.owner for handle in served[:10]] == queued
