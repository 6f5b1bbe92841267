"""client.semaphore(): at most N holders, in the order of arrival, each with its own lease and fence."""

import asyncio
import random

import pytest

import asyncdlock
from tests.contract.cases import Case, backends
from tests.contract.fixtures import Claims, Connect, until

pytestmark = backends(that=lambda can: can.semaphore)


async def _queued(claims: Claims, number: int) -> None:
    async def there() -> bool:
        return len(await claims()) >= number

    await until(there)


async def test_permits_are_given_out_once_each(
    locks: asyncdlock.LockClient, connect: Connect, key: str, claims: Claims
) -> None:
    semaphores = [client.semaphore(key, permits=3) for client in (locks, connect())]
    assert (semaphores[0].key, semaphores[0].permits) == (key, 3)
    held = [await semaphores[number % 2].acquire(timeout=30.0) for number in range(3)]
    assert len({handle.fence for handle in held}) == 3
    assert all(handle.shared and handle.held and handle.key == key for handle in held)
    for semaphore in semaphores:
        assert await semaphore.try_acquire() is None
        with pytest.raises(asyncdlock.AcquireTimeout):
            await semaphore.acquire(timeout=0.02)
        with pytest.raises(asyncdlock.AcquireTimeout):
            await semaphore.acquire(timeout=0)
    assert await held.pop(1).release() is True
    again = await semaphores[1].try_acquire()
    assert again is not None
    assert again.fence > max(handle.fence for handle in held)
    assert await semaphores[0].try_acquire() is None
    for handle in (*held, again):
        assert await handle.release() is True
        assert await handle.release() is False
    assert await claims() == []


async def test_at_most_so_many_among_many(connect: Connect, key: str, claims: Claims) -> None:
    dice = random.Random(11)
    inside = most = 0

    async def work(semaphore: asyncdlock.Semaphore) -> None:
        nonlocal inside, most
        for _ in range(6):
            async with semaphore.hold(timeout=60.0) as handle:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(dice.random() * 0.01)
                handle.check()
                inside -= 1

    crowd = [connect().semaphore(key, permits=4) for _ in range(3)]
    await asyncio.gather(*(work(semaphore) for semaphore in crowd for _ in range(5)))
    assert most == 4
    assert await claims() == []


async def test_waiters_are_served_in_the_order_of_arrival(connect: Connect, key: str, claims: Claims) -> None:
    one, two = (connect().semaphore(key, permits=2) for _ in range(2))
    held = [await one.acquire(), await two.acquire()]
    served: list[int] = []

    async def come(number: int) -> None:
        async with (one, two)[number % 2].hold(timeout=60.0):
            served.append(number)
            await asyncio.sleep(0.1)

    tasks = []
    for number in range(6):
        tasks.append(asyncio.create_task(come(number)))
        await _queued(claims, 3 + number)
    assert await one.try_acquire() is None
    assert await held[1].release()
    await until(lambda: bool(served))
    assert served == [0]
    assert await held[0].release()
    await asyncio.gather(*tasks)
    # Two of them are let in at the same moment at most.
    assert all(abs(place - number) <= 1 for place, number in enumerate(served)), served
    assert await claims() == []


async def test_a_permit_that_is_not_renewed_comes_back(
    locks: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    """While the others' leases go on."""
    semaphore = locks.semaphore(key, permits=2)
    kept = await semaphore.acquire()
    lapsed = await semaphore.acquire(ttl=ttl, renew=False)
    got = await connect().semaphore(key, permits=2).acquire(timeout=60.0)
    assert not lapsed.held
    assert kept.held
    assert await semaphore.try_acquire() is None
    await kept.renew()
    with pytest.raises(asyncdlock.LockLost):
        await lapsed.renew()
    assert await kept.release()
    assert await got.release()


async def test_permits_are_renewed(
    locks: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    semaphore = locks.semaphore(key, permits=2)
    held = [await semaphore.acquire(ttl=ttl) for _ in range(2)]
    ends = [handle.expires_at for handle in held]
    other = connect().semaphore(key, permits=2)
    waiting = asyncio.create_task(other.acquire(timeout=60.0))
    await until(lambda: all(one.expires_at > end + 2 * ttl for one, end in zip(held, ends, strict=True)))
    assert not waiting.done()
    assert await held[0].release()
    assert await (await waiting).release()
    assert await held[1].release()


async def test_another_number_of_permits(
    locks: asyncdlock.LockClient, connect: Connect, key: str, claims: Claims
) -> None:
    """Each goes by its own: nobody is thrown out by a smaller one, a larger one lets more in."""
    wide, narrow = locks.semaphore(key, permits=3), connect().semaphore(key, permits=1)
    held = [await wide.acquire() for _ in range(3)]
    assert await narrow.try_acquire() is None
    waiting = asyncio.create_task(narrow.acquire(timeout=60.0))
    await _queued(claims, 4)
    for handle in held[:2]:
        assert handle.held
        assert await handle.release()
    await asyncio.sleep(0.05)
    assert not waiting.done(), "one is held still, and it goes by one permit"
    assert await held[2].release()
    alone = await waiting
    assert await narrow.try_acquire() is None
    more = [await wide.try_acquire() for _ in range(3)]
    assert [handle is not None for handle in more] == [True, True, False]
    for permit in (alone, more[0], more[1]):
        assert permit is not None
        assert await permit.release()


async def test_an_exclusive_lock_of_the_same_key_waits_for_every_permit(
    locks: asyncdlock.LockClient, connect: Connect, key: str, claims: Claims
) -> None:
    semaphore, other = locks.semaphore(key, permits=2), connect()
    permit = await semaphore.acquire()
    with pytest.raises(asyncdlock.LockError, match="cannot be upgraded"):
        await locks.acquire(key)
    assert await other.try_acquire(key) is None
    alone = asyncio.create_task(other.acquire(key, timeout=60.0))
    await _queued(claims, 2)
    assert await semaphore.try_acquire() is None
    assert await permit.release()
    writer = await alone
    assert writer.fence > permit.fence
    assert await semaphore.try_acquire() is None
    assert await writer.release()
    assert await claims() == []


async def test_a_lost_permit_ends_the_body(
    case: Case, locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    with pytest.raises(asyncdlock.LockLost):
        async with locks.semaphore(key, permits=1).hold(ttl=ttl, renew=False):
            await asyncio.sleep(3600.0)


async def test_closing_gives_permits_back(connect: Connect, key: str, claims: Claims) -> None:
    client = connect()
    semaphore = client.semaphore(key, permits=2)
    held = [await semaphore.acquire(ttl=60.0) for _ in range(2)]
    waiting = asyncio.create_task(semaphore.acquire())
    await asyncio.sleep(0.05)
    await client.aclose()
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await waiting
    assert not any(handle.held for handle in held)
    assert await claims() == []
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await semaphore.acquire()
