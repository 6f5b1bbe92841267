"""A program that holds a key until it is killed: `holding.py URL KEY KIND TTL`; it says its fence then.

KIND: `exclusive`, `shared`, or the number of permits of a semaphore.
"""

import asyncio
import sys

import asyncdlock


async def main(url: str, key: str, kind: str, ttl: float) -> None:
    async with asyncdlock.connect(url) as locks:
        if kind.isdigit():
            handle = await locks.semaphore(key, permits=int(kind)).acquire(ttl=ttl)
        else:
            handle = await locks.acquire(key, ttl=ttl, shared=kind == "shared")
        sys.stdout.write(f"{handle.fence}\n")
        sys.stdout.flush()
        await asyncio.sleep(3600.0)


if __name__ == "__main__":
    _, url, key, kind, ttl = sys.argv
    asyncio.run(main(url, key, kind, float(ttl)))
