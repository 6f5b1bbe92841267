"""A program that uses every public name; `assert_type` states what a user's editor shows."""

import asyncio
from datetime import datetime
from typing import assert_type

from prometheus_client import CollectorRegistry

import asyncdlock


async def main() -> None:
    assert_type(asyncdlock.__version__, str)
    assert_type(asyncdlock.connect("memory://quiet", metrics=False), asyncdlock.LockClient)
    asyncdlock.connect("memory://apart", metrics=CollectorRegistry())
    async with asyncdlock.connect("memory://typing", max_hold=60.0) as locks:
        assert_type(locks, asyncdlock.LockClient)
        assert_type(locks.capabilities, asyncdlock.Capabilities)
        assert_type(locks.capabilities.fencing, bool)
        assert_type(locks.capabilities.min_ttl, float)
        handle = await locks.acquire("key", ttl=10.0, timeout=5.0, renew=True, max_hold=30.0)
        assert_type(handle, asyncdlock.Handle)
        assert_type(handle.key, str)
        assert_type(handle.owner, str)
        assert_type(handle.fence, int)
        assert_type(handle.ttl, float)
        assert_type(handle.label, str)
        info = await locks.inspect("key")
        assert_type(info, asyncdlock.LockInfo)
        assert_type(info.waiters, tuple[asyncdlock.Waiter, ...])
        assert_type([key async for key in locks.keys()], list[str])  # noqa: SIM118
        assert_type(await locks.force_release("other"), bool)
        assert_type(handle.acquired_at, float)
        assert_type(handle.expires_at, float)
        assert_type(handle.held, bool)
        assert_type(handle.remaining(), float)
        handle.check()
        await handle.renew()
        lost = asyncio.create_task(handle.wait_lost())
        assert_type(await handle.release(), bool)
        assert_type(await lost, bool)
        tried = await locks.try_acquire("key", ttl=10)
        assert_type(tried, asyncdlock.Handle | None)
        if tried is not None:
            await tried.release()
        async with locks.hold("key", ttl=10.0, timeout=None) as held:
            assert_type(held, asyncdlock.Handle)
        async with locks.hold("key", shared=True) as reader:
            assert_type(reader.shared, bool)
        assert_type(await locks.acquire("read", shared=True), asyncdlock.Handle)
        assert_type(await locks.try_acquire("read", shared=True), asyncdlock.Handle | None)
        semaphore = locks.semaphore("pool", permits=2)
        assert_type(semaphore, asyncdlock.Semaphore)
        assert_type(semaphore.key, str)
        assert_type(semaphore.permits, int)
        assert_type(await semaphore.acquire(ttl=10.0, timeout=5.0), asyncdlock.Handle)
        assert_type(await semaphore.try_acquire(ttl=10.0), asyncdlock.Handle | None)
        async with locks.semaphore("other", permits=1).hold(ttl=10.0) as permit:
            assert_type(permit, asyncdlock.Handle)
        lock = asyncdlock.ReentrantLock(locks, "key", ttl=10.0, timeout=5.0, max_hold=30.0)
        async with lock as outer, lock as inner:
            assert_type(outer, asyncdlock.Handle)
            assert inner is outer
            assert_type(lock.depth, int)
        await locks.raise_fence("key", above=41)
        async with locks.hold_all(["a", "b"], ttl=10.0, timeout=5.0, max_hold=30.0) as handles:
            assert_type(handles["a"], asyncdlock.Handle)
        async for term in locks.lead("leader", ttl=10.0):
            assert_type(term, asyncdlock.Term)
            async with term as leading:
                assert_type(leading, asyncdlock.Handle)
                assert_type(term.fence, int)
                break
        async for leader in locks.observe("leader", every=1.0):
            assert_type(leader, asyncdlock.Leader | None)
            if leader is not None:
                assert_type(leader.term, int | None)
            break
        async for each in locks.once("job", every="100ms"):
            assert_type(each, asyncdlock.Tick)
            async with each:
                assert_type(each.at, datetime)
                assert_type(each.previous, datetime | None)
                assert_type(each.missed, int)
                break
        assert_type(await locks.once_per("job", 1_700_000_000), asyncdlock.Tick | None)

        @locks.locked("account:{account_id}", ttl=10.0, timeout=5.0)
        async def pay(account_id: int, *, handle: asyncdlock.Handle | None = None) -> str:
            return f"{account_id}: {handle}"

        assert_type(await pay(42), str)
        try:
            await locks.acquire("", timeout=1.0)
        except asyncdlock.InvalidKey as invalid:
            assert_type(invalid, asyncdlock.InvalidKey)
        except asyncdlock.AcquireTimeout as late:
            timeout: TimeoutError = late
            raise timeout from None
        except asyncdlock.BackendError as failed:
            assert_type(failed.definite, bool)
            assert_type(failed.key, str | None)
            assert_type(failed.fence, int | None)


def threads() -> None:
    with asyncdlock.blocking.connect("memory://typing") as locks:
        assert_type(locks, asyncdlock.blocking.BlockingClient)
        with locks.hold("key", ttl=10.0, timeout=5.0) as handle:
            assert_type(handle, asyncdlock.blocking.BlockingHandle)
            assert_type(handle.fence, int)
            handle.check()
        tried = locks.try_acquire("key")
        assert_type(tried, asyncdlock.blocking.BlockingHandle | None)
        if tried is not None:
            tried.release()

        @locks.locked("account:{account_id}")
        def pay(account_id: int) -> str:
            return str(account_id)

        assert_type(pay(42), str)


if __name__ == "__main__":
    asyncio.run(main())
    threads()
