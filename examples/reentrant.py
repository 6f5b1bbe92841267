"""Functions that take the same lock and call each other: `python examples/reentrant.py [URL]`."""

import asyncio
import sys
import time

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"


async def post(lock: asyncdlock.ReentrantLock, amount: int) -> None:
    """Safe to call by itself, and from within a function that holds the lock already."""
    async with lock as handle:
        print(f"posting {amount} at depth {lock.depth} with fence {handle.fence}")


async def transfer(lock: asyncdlock.ReentrantLock, amount: int) -> None:
    async with lock as handle:
        print(f"transferring at depth {lock.depth} with fence {handle.fence}")
        await post(lock, -amount)
        await post(lock, amount)


async def main() -> None:
    async with asyncdlock.connect(URL) as locks:
        await transfer(asyncdlock.ReentrantLock(locks, "ledger:7"), 100)
        lock = asyncdlock.ReentrantLock(locks, "ledger:7", ttl=0.5)
        try:
            async with lock:
                time.sleep(1.0)  # noqa: ASYNC251 - the whole process stands still, and the lease runs out
                await post(lock, 100)
                print("never reached: a lost lock is not acquired anew behind the back of its holder")
        except asyncdlock.LockLost as lost:
            print(f"stopped in time: {lost}")


asyncio.run(main())
