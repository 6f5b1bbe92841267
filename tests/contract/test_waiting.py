"""acquire with a time limit, try_acquire, and what a wait that ended leaves behind."""

import asyncio
import time

import pytest

import asyncdlock
from tests.contract.fixtures import Claims, Connect, until


async def test_timeout_raises_acquire_timeout_and_leaves_nothing(
    connect: Connect, key: str, claims: Claims
) -> None:
    holder, waiter = connect(), connect()
    held = await holder.acquire(key)
    before = waiter._metrics.acquire_timeouts
    called = time.monotonic()
    with pytest.raises(asyncdlock.AcquireTimeout, match=key) as caught:
        await waiter.acquire(key, timeout=0.2)
    assert time.monotonic() - called > 0.15
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, asyncdlock.LockError)
    assert not isinstance(caught.value, asyncdlock.BackendError)
    assert waiter._metrics.acquire_timeouts == before + 1

    async def holder_alone() -> bool:
        return len(await claims()) == 1

    await until(holder_alone)
    assert await held.release()
    assert await claims() == []


async def test_timeout_within_one_client(locks: asyncdlock.LockClient, key: str, claims: Claims) -> None:
    async with locks.hold(key):
        with pytest.raises(asyncdlock.AcquireTimeout):
            await locks.acquire(key, timeout=0.05)
    await locks.aclose()
    assert await claims() == []


@pytest.mark.parametrize("timeout", [0, 0.0])
async def test_timeout_zero_takes_a_free_lock_and_does_not_wait_for_a_held_one(
    connect: Connect, key: str, timeout: float
) -> None:
    one, two = connect(), connect()
    handle = await one.acquire(key, timeout=timeout)
    for client in (one, two):
        with pytest.raises(asyncdlock.AcquireTimeout):
            await client.acquire(key, timeout=timeout)
    assert handle.held
    assert await handle.release()


async def test_a_timeout_that_is_not_reached_changes_nothing(connect: Connect, key: str) -> None:
    one, two = connect(), connect()
    async with one.hold(key):
        waiting = asyncio.create_task(two.acquire(key, timeout=3600.0))
        await asyncio.sleep(0.05)
        assert not waiting.done()
    handle = await waiting
    assert await handle.release()


async def test_try_acquire_takes_a_free_lock_and_nothing_else(
    connect: Connect, key: str, claims: Claims
) -> None:
    one, two = connect(), connect()
    handle = await one.try_acquire(key)
    assert handle is not None
    assert handle.held
    assert await one.try_acquire(key) is None
    assert await two.try_acquire(key) is None
    assert len(await claims()) == 1
    assert await handle.release()
    assert await claims() == []
    again = await two.try_acquire(key)
    assert again is not None
    assert again.fence > handle.fence
    assert await again.release()


async def test_a_wait_that_was_given_up_does_not_hold_up_the_next(connect: Connect, key: str) -> None:
    """Neither a timed-out nor a cancelled waiter costs those behind it anything."""
    client, other = connect(), connect()
    first = await client.acquire(key, ttl=60.0)
    gone = asyncio.create_task(other.acquire(key, ttl=60.0))
    with pytest.raises(asyncdlock.AcquireTimeout):
        await other.acquire(key, ttl=60.0, timeout=0.05)
    patient = asyncio.create_task(client.acquire(key, ttl=60.0))
    await asyncio.sleep(0.05)
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()
    assert await first.release()
    async with asyncio.timeout(30.0):
        assert await (await patient).release()


async def test_a_holder_that_vanished_is_waited_for_no_longer_than_its_ttl(
    connect: Connect, key: str, ttl: float
) -> None:
    one, two = connect(), connect()
    gone = await one.acquire(key, ttl=ttl, renew=False)
    here, there = await asyncio.gather(_fence(one, key), _fence(two, key))
    assert min(here, there) > gone.fence
    assert here != there
    assert not gone.held


async def _fence(client: asyncdlock.LockClient, key: str) -> int:
    async with client.hold(key, timeout=30.0) as handle:
        return handle.fence


async def test_try_acquire_gets_the_lock_of_a_holder_that_vanished(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    """Also where one client does both: its own queue must not outlive the lease."""
    gone = await locks.acquire(key, ttl=ttl, renew=False)
    won: list[asyncdlock.Handle] = []

    async def tried() -> bool:
        handle = await locks.try_acquire(key)
        if handle is not None:
            won.append(handle)
        return handle is not None

    await until(tried)
    assert won[0].fence > gone.fence
    assert await won[0].release()


async def test_waiters_are_counted_while_they_wait(locks: asyncdlock.LockClient, key: str) -> None:
    before = locks._metrics.waiters
    async with locks.hold(key):
        tasks = [asyncio.create_task(locks.acquire(key, timeout=0.1)) for _ in range(3)]
        await asyncio.sleep(0)
        assert locks._metrics.waiters == before + 3
        await asyncio.wait(tasks)
    assert all(isinstance(task.exception(), asyncdlock.AcquireTimeout) for task in tasks)
    assert locks._metrics.waiters == before
