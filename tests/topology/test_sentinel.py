"""?topology=sentinel: the primary is found, and found again after it was replaced."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import asyncdlock
from asyncdlock import BackendError, BackendUnavailable
from harness import servers
from harness.servers import RedisWithSentinels
from tests.redis_queue.support import eventually, hold_in_turn, until_waiting, waiters
from tests.topology.contention import Contention

SCHEMES = pytest.mark.parametrize("scheme", ["redis", "redis-queue"])


def with_scheme(url: str, scheme: str) -> str:
    return scheme + url[url.index("://") :]


@pytest.fixture
async def group() -> AsyncIterator[RedisWithSentinels]:
    """A primary, a replica and three sentinels of this test's own."""
    async with servers.redis_sentinel(replicas=1, password="not-a-secret") as started:
        yield started


@SCHEMES
async def test_locks_behind_sentinels(redis_sentinel_url: str, scheme: str) -> None:
    url = with_scheme(redis_sentinel_url, scheme)
    key = f"sentinel {scheme}"
    async with asyncdlock.connect(url) as one, asyncdlock.connect(url) as two:
        holder = await one.acquire(key)
        assert await two.try_acquire(key) is None
        async with waiters(one, key, 5) as mine, waiters(two, key, 5) as theirs:
            await asyncio.sleep(0.05)
            await holder.renew()
            await holder.release()
            served = await hold_in_turn([*mine, *theirs])
        assert len({handle.fence for handle in served}) == 10
        assert min(handle.fence for handle in served) > holder.fence


@pytest.mark.faults
@SCHEMES
@pytest.mark.parametrize("how", ["killed", "demoted"])
async def test_the_new_primary_is_found(group: RedisWithSentinels, scheme: str, how: str) -> None:
    """Waiters go on, or fail with an error that says so; then the same client goes on by itself."""
    first = await group.primary()
    async with asyncdlock.connect(with_scheme(group.url, scheme), local_handoffs=0) as client:
        contention = Contention(client, "k")
        async with contention.running(5):
            await contention.goes_on()
            if how == "killed":
                first.kill()
            else:
                await group.sentinels[0].command("SENTINEL", "FAILOVER", "mymaster")
            await group.promoted(instead_of=first)
            await contention.goes_on()
        contention.failed_clearly()
        assert contention.fences == sorted(set(contention.fences)), (
            "the client lifts a counter that the new primary had not heard of in full"
        )


@pytest.mark.faults
async def test_waiters_keep_their_places_when_the_primary_hands_over(group: RedisWithSentinels) -> None:
    """A planned failover: the queue was replicated, and is served in order by the new primary."""
    first = await group.primary()
    url = with_scheme(group.url, "redis-queue")
    async with asyncdlock.connect(url, local_handoffs=0) as client:
        holder = await client.acquire("k", ttl=600.0)
        async with waiters(client, "k", 10, ttl=600.0) as tasks:
            queued = await until_waiting(first, "k", 10)
            await group.sentinels[0].command("SENTINEL", "FAILOVER", "mymaster")
            second = await group.promoted(instead_of=first)
            assert await until_waiting(second, "k", 10) == queued
            assert await holder.release()
            served = await hold_in_turn(tasks)
        assert [handle.owner for handle in served] == queued


@pytest.mark.faults
async def test_a_primary_that_became_a_replica_is_left(group: RedisWithSentinels) -> None:
    """READONLY: the error says so, the connection is given up, and the next call asks the sentinels."""
    first = await group.primary()
    (replica,) = (server for server in group.servers if server is not first)
    async with asyncdlock.connect(with_scheme(group.url, "redis-queue")) as client:
        await (await client.acquire("k")).release()
        for sentinel in group.sentinels:
            sentinel.pause()  # or they would undo what follows
        await first.command("REPLICAOF", replica.host, replica.port)
        with pytest.raises(BackendUnavailable, match="READONLY") as raised:
            await client.acquire("k")
        assert raised.value.definite, "nothing was done"
        await first.command("REPLICAOF", "NO", "ONE")
        for sentinel in group.sentinels:
            sentinel.resume()

        async def works() -> bool:
            try:
                await (await client.acquire("k")).release()
            except BackendUnavailable:
                return False
            return True

        await eventually(works, "a primary that grants the lock")


@SCHEMES
async def test_what_the_sentinels_do_not_know_is_said(redis_sentinel_url: str, scheme: str) -> None:
    url = with_scheme(redis_sentinel_url, scheme).replace("service=mymaster", "service=nobody")
    async with asyncdlock.connect(url) as client:
        with pytest.raises(BackendError, match="nobody"):
            await client.acquire("k")


@pytest.mark.faults
async def test_one_sentinel_that_answers_is_enough(group: RedisWithSentinels) -> None:
    for sentinel in group.sentinels.nodes[:2]:
        sentinel.kill()
    async with asyncdlock.connect(group.url) as client:
        assert await (await client.acquire("k")).release()
    group.sentinels[2].kill()
    async with asyncdlock.connect(group.url) as client:
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await client.acquire("k")
