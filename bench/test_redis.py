"""pytest bench: ours beside redis-py's Lock in one process. `python -m bench.peers` is the full contest."""

import pytest
import redis.asyncio

import asyncdlock
from asyncdlock._inside import backend_of, grant_of
from bench.measure import Measure


def connect(redis_url: str, what: str) -> asyncdlock.LockClient:
    """A client by scheme and query, such as `redis-queue://?local_handoffs=0`."""
    scheme, _, query = what.partition("://")
    return asyncdlock.connect(redis_url.replace("redis", scheme, 1) + query)


@pytest.mark.parametrize("tasks", [1, 100])
@pytest.mark.parametrize("scheme", ["redis://", "redis-queue://", "redis-queue://?local_handoffs=0"])
async def test_own_keys(measure: Measure, redis_url: str, scheme: str, tasks: int) -> None:
    """Uncontended acquire and release is faster than redis-py's Lock."""
    peer = redis.asyncio.Redis.from_url(redis_url, max_connections=200)
    async with connect(redis_url, scheme) as locks, peer:

        async def ours(number: int) -> None:
            await (await locks.acquire(f"own:{number}")).release()

        async def theirs(number: int) -> None:
            async with peer.lock(f"peer:{number}", timeout=10):
                pass

        name = f"own keys, {tasks} at a time"
        us, them = await measure.together(
            {f"{name}, {scheme}": ours, f"{name}, redis-py beside {scheme}": theirs}, tasks=tasks
        )
        assert us.rate > them.rate


@pytest.mark.parametrize("scheme", ["redis-queue://", "redis-queue://?local_handoffs=0"])
async def test_hot_key(measure: Measure, redis_url: str, scheme: str) -> None:
    """Twenty times the contenders cost at most half of the throughput."""
    async with connect(redis_url, scheme) as locks:

        async def section(_: int) -> None:
            await (await locks.acquire("hot")).release()

        few = await measure(f"hot key, 50 contenders, {scheme}", section, tasks=50)
        many = await measure(f"hot key, 1000 contenders, {scheme}", section, tasks=1000)
        assert many.rate > few.rate / 2


async def test_renewal_of_many(measure: Measure, redis_url: str) -> None:
    """Ten thousand held locks are renewed by a few scripts."""
    async with connect(redis_url, "redis://") as locks:
        handles = [await locks.acquire(f"held:{number}", ttl=60) for number in range(10_000)]
        grants = [grant_of(handle) for handle in handles]
        before, rounds = backend_of(locks).commands, 0

        async def renew(_: int) -> None:
            nonlocal rounds
            rounds += 1
            await backend_of(locks).renew(grants)

        await measure("renewal of 10,000 locks", renew, tasks=1)
        assert (backend_of(locks).commands - before) / rounds < 100
