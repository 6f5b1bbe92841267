"""acquire(timeout=…): one timer for all waits of a client; none ends early, twice or for another."""

import asyncio
import time

import pytest

import asyncdlock
from asyncdlock import AcquireTimeout, LockClient
from asyncdlock._deadlines import Deadlines
from tests.contract.fixtures import until


@pytest.fixture
async def locks() -> LockClient:
    return asyncdlock.connect("memory://")


async def test_no_wait_ends_before_its_time(locks: LockClient) -> None:
    async with locks, locks.hold("k"):
        for timeout in (0.001, 0.0105, 0.05, 1.003):
            began = time.monotonic()
            with pytest.raises(AcquireTimeout):
                await locks.acquire("k", timeout=timeout)
            assert time.monotonic() - began >= timeout


async def test_each_wait_ends_at_its_own_time(locks: LockClient) -> None:
    """The short one came last: the timer was set for the long one."""
    ended: list[float] = []

    async def wait(timeout: float) -> None:
        with pytest.raises(AcquireTimeout):
            await locks.acquire("k", timeout=timeout)
        ended.append(timeout)

    async with locks, locks.hold("k"):
        await asyncio.gather(wait(0.9), wait(0.5), wait(0.1))
    assert ended == [0.1, 0.5, 0.9]


async def test_a_cancellation_that_meets_the_deadline_is_obeyed(locks: LockClient) -> None:
    """Both have asked for a cancellation: the caller's must not be turned into a time-out."""
    async with locks, locks.hold("k"):
        for delay in (0.0, 0.0095, 0.01, 0.0105, 0.011):
            waiting = asyncio.create_task(locks.acquire("k", timeout=0.01))
            await asyncio.sleep(delay)
            if not waiting.cancel():
                continue
            done, _ = await asyncio.wait({waiting}, timeout=30)
            assert done
            assert waiting.cancelled()


async def test_a_time_out_leaves_no_cancellation_behind(locks: LockClient) -> None:
    task = asyncio.current_task()
    assert task is not None
    async with locks, locks.hold("k"):
        for _ in range(3):
            with pytest.raises(AcquireTimeout):
                await locks.acquire("k", timeout=0.01)
            assert task.cancelling() == 0
        assert not locks._deadlines.expired


async def test_a_grant_that_comes_in_time_is_not_disturbed_by_its_deadline(locks: LockClient) -> None:
    async with locks:
        first = await locks.acquire("k")
        waiting = asyncio.create_task(locks.acquire("k", timeout=0.2))
        await asyncio.sleep(0)
        await first.release()
        handle = await waiting
        await asyncio.sleep(0.3)
        assert handle.held
        await handle.release()


async def test_an_outer_time_out_stays_the_callers(locks: LockClient) -> None:
    async with locks, locks.hold("k"):
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.02):
                await locks.acquire("k", timeout=60.0)
        assert not isinstance(caught.value, AcquireTimeout)


async def test_many_short_calls_leave_few_buckets(locks: LockClient) -> None:
    """Whoever has left is passed over: memory follows the span of a bucket, not the number of calls."""
    async with locks:
        for _ in range(2000):
            await (await locks.acquire("k", timeout=0.01)).release()
        await asyncio.sleep(0.05)
        await (await locks.acquire("k", timeout=0.01)).release()
        assert len(locks._deadlines._order) == len(locks._deadlines._buckets) < 50


async def test_a_time_out_of_infinity_is_none(locks: LockClient) -> None:
    async with locks:
        await (await locks.acquire("k", timeout=float("inf"))).release()
        assert not locks._deadlines._buckets


async def test_a_bucket_that_was_passed_over_is_not_entered_again() -> None:
    """Waits of one length share the last bucket: once it is gone, nobody would end them."""
    deadlines = Deadlines()
    now = time.monotonic()
    deadlines.enter(now, 0.0)
    assert deadlines.enter(now, 5.0) is deadlines.bucket
    assert deadlines.same_until > now
    await until(lambda: not deadlines._order)  # all were empty, and one timer passed over both
    assert deadlines.same_until < now
