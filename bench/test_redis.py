"""pytest bench: ours beside redis-py's Lock in one process. `python -m bench.peers` is the full contest."""

from collections.abc import Callable

import pytest
import redis.asyncio

import asyncdlock
from asyncdlock._inside import backend_of, grant_of
from bench.conftest import Measure

Connect = Callable[[str], asyncdlock.LockClient]


@pytest.mark.parametrize("tasks", [1, 100])
@pytest.mark.parametrize("scheme", ["redis://", "redis-queue://", "redis-queue://?local_handoffs=0"])
async def test_own_keys(measure: Measure, connect: Connect, redis_url: str, scheme: str, tasks: int) -> None:
    """Uncontended acquire and release is faster than redis-py's Lock."""
    async with connect(scheme) as locks, redis.asyncio.Redis.from_url(redis_url, max_connections=200) as peer:

        async def ours(number: int) -> None:
            await (await locks.acquire(f"own:{number}")).release()

        async def theirs(number: int) -> None:
            async with peer.lock(f"peer:{number}", timeout=10):
                pass

        name = f"own keys, {tasks} tasks"
        our_rate = await measure.rate(f"{name}, {scheme}", ours, tasks=tasks)
        their_rate = await measure.rate(f"{name}, redis-py", theirs, tasks=tasks)
        assert our_rate > their_rate


@pytest.mark.parametrize("scheme", ["redis-queue://", "redis-queue://?local_handoffs=0"])
async def test_hot_key(measure: Measure, connect: Connect, scheme: str) -> None:
    """Twenty times the contenders cost at most half of the throughput."""
    async with connect(scheme) as locks:

        async def section(_: int) -> None:
            await (await locks.acquire("hot")).release()

        few = await measure.rate(f"hot key, 50 contenders, {scheme}", section, tasks=50)
        many = await measure.rate(f"hot key, 1000 contenders, {scheme}", section, tasks=1000)
        assert many > few / 2


async def test_renewal_of_many(measure: Measure, connect: Connect) -> None:
    """Ten thousand held locks are renewed by a few scripts."""
    async with connect("redis://") as locks:
        handles = [await locks.acquire(f"held:{number}", ttl=60) for number in range(10_000)]
        grants = [grant_of(handle) for handle in handles]
        before = backend_of(locks).commands

        async def renew(_: int) -> None:
            await backend_of(locks).renew(grants)

        rate = await measure.rate("renewal of 10,000 locks", renew, tasks=1)
        rounds = (backend_of(locks).commands - before) / 40
        assert rounds >= rate / 2
        assert (backend_of(locks).commands - before) / rounds < 100
