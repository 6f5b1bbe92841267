"""hold(): the body ends when the lease does; everything else passes through as it is."""

import asyncio
import contextlib
import time

import pytest

import asyncdlock
from tests.contract.fixtures import Claims, Connect
from tests.contract.test_lease import take_away


async def forever() -> None:
    await asyncio.sleep(3600.0)


async def test_hold_acquires_and_releases(locks: asyncdlock.LockClient, key: str, claims: Claims) -> None:
    async with locks.hold(key, ttl=20.0, timeout=10.0) as handle:
        handle.check()
        assert handle.ttl == 20.0
        assert len(await claims()) == 1
    assert not handle.held
    assert await claims() == []


async def test_hold_never_runs_its_body_without_the_lock(connect: Connect, key: str) -> None:
    one, two = connect(), connect()
    async with one.hold(key):
        with pytest.raises(asyncdlock.AcquireTimeout):
            async with two.hold(key, timeout=0.05):
                pytest.fail("the body ran unlocked")


async def test_a_lost_lease_cancels_the_body(connect: Connect, key: str, ttl: float) -> None:
    one, two = connect(), connect()
    cancelled = False
    with pytest.raises(asyncdlock.LockLost, match=key):
        async with one.hold(key, ttl=ttl) as handle:
            await take_away(handle, one)
            try:
                await forever()
            except asyncio.CancelledError:
                cancelled = True
                assert not handle.held
                raise
    assert cancelled
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with two.hold(key, timeout=30.0) as next_handle:
        assert next_handle.fence > handle.fence


async def test_the_body_ends_with_a_lease_that_nobody_renews(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    with pytest.raises(asyncdlock.LockLost, match="ran out"):
        async with locks.hold(key, ttl=ttl, renew=False) as handle:
            await forever()
    # Before the server may give it to another, and by the local clock.
    assert time.monotonic() < handle.expires_at + 10.0


async def test_a_body_that_swallows_the_cancellation_still_gets_lock_lost(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    with pytest.raises(asyncdlock.LockLost):
        async with locks.hold(key, ttl=ttl) as handle:
            await take_away(handle, locks)
            with contextlib.suppress(asyncio.CancelledError):
                await forever()


async def test_the_callers_cancellation_passes_through(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with locks.hold(key):
            entered.set()
            await forever()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await locks.aclose()
    assert await claims() == []


async def test_a_cancellation_that_meets_the_loss_is_not_swallowed(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        async with locks.hold(key, ttl=ttl) as handle:
            await take_away(handle, locks)
            try:
                await forever()
            finally:
                tasks[0].cancel()

    tasks.append(asyncio.create_task(work()))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


async def test_a_timeout_around_hold_passes_through(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.05):
            async with locks.hold(key):
                await forever()
    assert not isinstance(caught.value, asyncdlock.LockError)
    await locks.aclose()
    assert await claims() == []


async def test_a_timeout_around_the_wait_passes_through(connect: Connect, key: str) -> None:
    one, two = connect(), connect()
    async with one.hold(key):
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.05):
                await two.acquire(key)
    assert not isinstance(caught.value, asyncdlock.LockError)


async def test_the_bodys_own_timeout_and_errors_pass_through(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    with pytest.raises(TimeoutError) as caught:
        async with locks.hold(key):
            async with asyncio.timeout(0.01):
                await forever()
    assert not isinstance(caught.value, asyncdlock.LockError)
    for error in (TimeoutError("mine"), ValueError("mine"), asyncdlock.LockLost("of another lock")):
        with pytest.raises(type(error)) as raised:
            async with locks.hold(key):
                raise error
        assert raised.value is error
    assert await claims() == []


async def test_nested_holds_tell_which_lock_was_lost(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    inner_key = f"{key}-inner"
    async with locks.hold(key, ttl=60.0) as outer:
        with pytest.raises(asyncdlock.LockLost, match=inner_key):
            async with locks.hold(inner_key, ttl=ttl) as inner:
                await take_away(inner, locks)
                await forever()
        outer.check()
        await outer.renew()


async def test_losing_the_outer_lock_ends_the_inner_body_and_releases_its_lock(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    inner_key = f"{key}-inner"
    with pytest.raises(asyncdlock.LockLost) as caught:
        async with locks.hold(key, ttl=ttl) as outer:
            async with locks.hold(inner_key, ttl=60.0) as inner:
                await take_away(outer, locks)
                await forever()
    assert repr(key) in str(caught.value)
    assert not inner.held
    again = await locks.acquire(inner_key, timeout=30.0)
    assert await again.release()


async def test_a_task_group_in_the_body_ends_with_the_lease(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    cancelled: list[int] = []

    async def child(number: int) -> None:
        try:
            await forever()
        finally:
            cancelled.append(number)

    with pytest.raises(asyncdlock.LockLost):
        async with locks.hold(key, ttl=ttl) as handle, asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(child(number))
            await take_away(handle, locks)
    assert sorted(cancelled) == [0, 1, 2]


async def test_releasing_inside_the_body_ends_the_supervision(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    """What the body does after its own release is not under the lock, nor under its deadline."""
    async with locks.hold(key, ttl=ttl) as handle:
        assert await handle.release()
        await asyncio.sleep(1.1 * ttl)
    assert not handle.held
