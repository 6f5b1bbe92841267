"""The life of one handle: what it tells, renewal, release, expiry, loss."""

import asyncio
import time
import uuid

import pytest

import asyncdlock
from asyncdlock.types import validity
from tests.contract.cases import backends
from tests.contract.fixtures import Claims, Connect, until


async def take_away(handle: asyncdlock.Handle, client: asyncdlock.LockClient) -> None:
    """The server forgets the lock while the handle believes to hold it."""
    assert await client._backend.release(handle._holding.grant.claim)


async def test_a_handle_tells_what_was_granted(locks: asyncdlock.LockClient, key: str) -> None:
    earliest, before = time.time(), time.monotonic()
    handle = await locks.acquire(key, ttl=20.0)
    assert handle.key == key
    assert handle.ttl == 20.0
    assert uuid.UUID(handle.owner).version == 8
    assert isinstance(handle.fence, int)
    assert earliest <= handle.acquired_at <= time.time()
    assert handle.held
    handle.check()
    # Validity counts from some time after the call and before the reply, less the drift allowance.
    assert before + validity(20.0) <= handle.expires_at <= time.monotonic() + validity(20.0)
    assert 0.0 < handle.remaining() < 20.0
    assert key in repr(handle)
    await handle.release()


async def test_every_attempt_has_an_owner_of_its_own(connect: Connect, key: str) -> None:
    owners = set()
    for client in (connect(), connect()):
        for _ in range(3):
            async with client.hold(key) as handle:
                owners.add(handle.owner)
    assert len(owners) == 6


async def test_one_of_two_releases_at_the_same_time_returns_true(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    handle = await locks.acquire(key)
    assert sorted(await asyncio.gather(handle.release(), handle.release())) == [False, True]
    assert await claims() == []


async def test_release_returns_true_once(locks: asyncdlock.LockClient, key: str, claims: Claims) -> None:
    handle = await locks.acquire(key)
    before = locks._metrics.release_by_non_owner
    assert await handle.release() is True
    assert not handle.held
    assert handle.remaining() == 0.0
    assert await handle.release() is False
    assert locks._metrics.release_by_non_owner == before + 1
    with pytest.raises(asyncdlock.LockLost, match="released"):
        handle.check()
    assert await claims() == []


async def test_two_tasks_may_release_at_once(locks: asyncdlock.LockClient, key: str) -> None:
    handle = await locks.acquire(key)
    observed = sum(locks._metrics.held_seconds.counts)
    releasing = [asyncio.create_task(handle.release()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not handle.held, "a lock that is being given back may be another's at any moment"
    assert True in await asyncio.gather(*releasing)
    assert await handle.release() is False
    assert sum(locks._metrics.held_seconds.counts) == observed + 1


async def test_a_displaced_holder_notices_and_cannot_touch_the_next_ones_lock(
    connect: Connect, key: str, ttl: float
) -> None:
    one, two = connect(), connect()
    lost, released = one._metrics.lost, one._metrics.release_by_non_owner
    stale = await one.acquire(key, ttl=ttl, renew=False)
    current = await two.acquire(key, ttl=60.0, timeout=30.0)
    assert current.fence > stale.fence
    assert not stale.held
    assert stale.remaining() == 0.0
    with pytest.raises(asyncdlock.LockLost, match=key):
        stale.check()
    with pytest.raises(asyncdlock.LockLost, match=key):
        await stale.renew()
    async with asyncio.timeout(10.0):
        await stale.wait_lost()
    assert one._metrics.lost == lost + 1
    assert await stale.release() is False
    assert one._metrics.release_by_non_owner == released + 1
    await current.renew()
    assert await one.try_acquire(key) is None
    assert await current.release() is True


async def test_the_lease_is_kept_for_longer_than_its_ttl(connect: Connect, key: str, ttl: float) -> None:
    one, two = connect(), connect()
    ttl = max(ttl, 3.0)  # its renewal must come in time, and a loaded disk may take half a second
    async with one.hold(key, ttl=ttl) as handle:
        end = time.monotonic() + 1.7 * ttl
        while time.monotonic() < end:
            await asyncio.sleep(ttl / 10)
            handle.check()
            assert await two.try_acquire(key) is None
        assert handle.remaining() > 0.0
    assert one._metrics.renewals["renewed"] > 0


async def test_max_hold_stops_the_renewal_of_hung_code(connect: Connect, key: str, ttl: float) -> None:
    hung, other = connect(max_hold=ttl / 4), connect()
    handle = await hung.acquire(key, ttl=ttl)
    async with other.hold(key, timeout=30.0) as next_handle:
        assert next_handle.fence > handle.fence
        assert not handle.held
    async with asyncio.timeout(30.0):
        await handle.wait_lost()


async def test_renew_extends_the_lease(connect: Connect, key: str, ttl: float) -> None:
    one, two = connect(), connect()
    ttl = max(ttl, 3.0)  # a busy machine may stand still for two seconds without losing it
    handle = await one.acquire(key, ttl=ttl, renew=False)
    for _ in range(5):
        await asyncio.sleep(ttl / 4)
        left = handle.remaining()
        await handle.renew()
        assert handle.remaining() > left
        assert handle.remaining() <= validity(ttl)
        assert await two.try_acquire(key) is None
    assert await handle.release()


async def test_renew_of_a_lock_that_is_gone_raises_lock_lost(locks: asyncdlock.LockClient, key: str) -> None:
    handle = await locks.acquire(key, ttl=60.0)
    await take_away(handle, locks)
    with pytest.raises(asyncdlock.LockLost, match=key):
        await handle.renew()
    assert not handle.held
    async with asyncio.timeout(10.0):
        await handle.wait_lost()
    assert await handle.release() is False


async def test_renew_does_not_bring_back_what_was_released(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    handle = await locks.acquire(key)
    await handle.release()
    with pytest.raises(asyncdlock.LockLost, match="released"):
        await handle.renew()
    assert await claims() == []


async def test_a_lock_taken_away_is_noticed_by_the_next_renewal(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    handle = await locks.acquire(key, ttl=ttl)
    before = locks._metrics.lost
    await take_away(handle, locks)
    async with asyncio.timeout(30.0):
        await handle.wait_lost()
    assert not handle.held
    assert locks._metrics.lost == before + 1


async def test_wait_lost_serves_many_and_tells_a_loss_from_a_release(
    locks: asyncdlock.LockClient, key: str
) -> None:
    released = await locks.acquire(key)
    told = [asyncio.create_task(released.wait_lost()) for _ in range(3)]
    await asyncio.sleep(0)
    assert await released.release()
    async with asyncio.timeout(30.0):
        assert await asyncio.gather(*told) == [False] * 3
        assert await released.wait_lost() is False, "asked afterwards"
    handle = await locks.acquire(key)
    gone = asyncio.create_task(handle.wait_lost())
    told = [asyncio.create_task(handle.wait_lost()) for _ in range(3)]
    await asyncio.sleep(0)
    gone.cancel()
    await take_away(handle, locks)
    with pytest.raises(asyncdlock.LockLost):
        await handle.renew()
    async with asyncio.timeout(30.0):
        assert await asyncio.gather(*told) == [True] * 3
        assert await handle.wait_lost() is True
    await asyncio.wait([gone])
    assert gone.cancelled()


async def test_a_loss_that_the_release_finds_is_told_to_who_waits_for_it(
    locks: asyncdlock.LockClient, key: str
) -> None:
    """Whether `hold()` releases or the holder itself."""
    lost = locks._metrics.lost
    with pytest.raises(asyncdlock.LockLost, match="no longer owned") as caught:
        async with locks.hold(key, ttl=60.0) as handle:
            watcher = asyncio.create_task(handle.wait_lost())
            await asyncio.sleep(0)
            await take_away(handle, locks)
    assert (caught.value.key, caught.value.fence, caught.value.owner) == (key, handle.fence, handle.owner)
    other = await locks.acquire(key, ttl=60.0)
    second = asyncio.create_task(other.wait_lost())
    await asyncio.sleep(0)
    await take_away(other, locks)
    assert await other.release() is False
    async with asyncio.timeout(30.0):
        assert all(await asyncio.gather(watcher, second))
    assert locks._metrics.lost == lost + 2


# A thread would renew meanwhile: see tests/kinds/test_renew_in.py.
@backends(only=lambda case: case.options.get("renew_in") != "thread")
async def test_a_stalled_event_loop_is_noticed_on_use(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    """No timer ran, and uvloop's own clock stood still: the handle looks at the real one."""
    with pytest.raises(asyncdlock.LockLost, match="ran out"):
        async with locks.hold(key, ttl=ttl) as handle:
            time.sleep(ttl + 0.05)
            assert not handle.held
            handle.check()
    await until(lambda: locks.max_loop_lag > 0.0)
