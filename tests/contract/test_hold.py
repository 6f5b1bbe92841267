"""hold(): the body ends when the lease does; everything else passes through as it is."""

import asyncio
import contextlib
import time

import pytest

import asyncdlock
from asyncdlock.backends.redlock.backend import RedlockBackend
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
    ttl = max(ttl, 3.0)  # a busy machine may need a second to take the inner lock
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


async def test_a_hold_in_use_is_not_entered_again_and_nothing_is_sent(
    locks: asyncdlock.LockClient, key: str
) -> None:
    hold = locks.hold(key)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with hold as handle:
            entered.set()
            await leave.wait()
            handle.check()

    task = asyncio.create_task(first())
    await entered.wait()
    await _nothing_on_its_way(locks)
    sent = locks._backend.commands
    for _ in range(2):
        with pytest.raises(asyncdlock.LockError, match="in use"):
            async with hold:
                pytest.fail("two bodies under one lock")
    assert locks._backend.commands == sent
    leave.set()
    await task


async def test_a_hold_that_another_task_is_about_to_enter_is_in_use(connect: Connect, key: str) -> None:
    """The first still waits for the lock; its place is not taken over."""
    one, two = connect(), connect()
    async with one.hold(key):
        hold = two.hold(key)
        waiting = asyncio.create_task(hold.__aenter__())
        await asyncio.sleep(0.05)
        with pytest.raises(asyncdlock.LockError, match="in use"):
            await hold.__aenter__()
    await waiting
    await hold.__aexit__(None, None, None)


async def test_a_hold_may_be_used_again_after_its_exit(
    locks: asyncdlock.LockClient, connect: Connect, key: str, claims: Claims
) -> None:
    hold = locks.hold(key, timeout=30.0)
    fences = []
    for _ in range(3):
        async with hold as handle:
            fences.append(handle.fence)
    assert fences == sorted(set(fences))
    with pytest.raises(asyncdlock.LockError, match="without having been entered"):
        await hold.__aexit__(None, None, None)
    # A use that failed is over as well.
    impatient = locks.hold(key, timeout=0)
    async with connect().hold(key):
        with pytest.raises(asyncdlock.AcquireTimeout):
            await impatient.__aenter__()
    async with impatient:
        assert len(await claims()) == 1
    assert await claims() == []


async def test_a_body_that_swallows_its_cancellation_is_told_at_the_exit(
    locks: asyncdlock.LockClient, key: str, ttl: float, claims: Claims
) -> None:
    with pytest.raises(asyncdlock.LockLost, match="ran out"):
        async with locks.hold(key, ttl=ttl, renew=False):
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(ValueError, match="mine"):
        async with locks.hold(key, ttl=ttl, renew=False, timeout=30.0):
            try:
                await forever()
            except asyncio.CancelledError:
                raise ValueError("mine") from None
    await locks.aclose()
    assert await claims() == []


async def test_a_task_that_was_cancelled_before_it_asked_gets_nothing(
    connect: Connect, key: str, claims: Claims
) -> None:
    """Not even where the answer takes no waiting."""
    client = connect()
    await (await client.acquire(f"{key}-warm")).release()
    await _nothing_on_its_way(client)
    sent = client._backend.commands
    taken: list[object] = []

    async def ask(call: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        taken.append(await getattr(client, call)(key))

    async def enter() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        async with client.hold(key) as handle:
            taken.append(handle)

    for asking in (ask("acquire"), ask("try_acquire"), enter()):
        task = asyncio.create_task(asking)
        await asyncio.wait([task])
        assert task.cancelled()
    assert taken == []
    assert client._backend.commands == sent
    assert await claims() == []


async def test_a_lock_is_taken_in_the_clean_up_of_a_cancelled_task(
    locks: asyncdlock.LockClient, key: str
) -> None:
    """Its cancellation has been delivered: nothing is in the way of what it does on its way out."""
    fences: list[int] = []
    started = asyncio.Event()

    async def work() -> None:
        try:
            started.set()
            await forever()
        finally:
            async with locks.hold(key) as handle:
                fences.append(handle.fence)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(fences) == 1


async def _nothing_on_its_way(client: asyncdlock.LockClient) -> None:
    """A majority is enough for Redlock: a node that is slow to connect hears of a request after its end."""
    backend = client._backend
    if isinstance(backend, RedlockBackend):
        while (
            backend._latest
            or backend._background.tasks
            or not all(member.is_open for member in backend._members)
        ):
            await asyncio.sleep(0.01)
