"""One leader, and another after it: `python examples/leader.py [URL]`."""

import asyncio
import sys

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"


async def candidate(name: str, locks: asyncdlock.LockClient) -> None:
    async for term in locks.lead("scheduler"):
        async with term as handle:
            print(f"{name} leads in term {term.fence}")
            for _ in range(3):
                handle.check()  # before anything that only a leader may do
                await asyncio.sleep(0.01)
            print(f"{name} resigns")
            break


async def main() -> None:
    async with asyncdlock.connect(URL) as locks:
        await asyncio.gather(candidate("one", locks), candidate("two", locks))


asyncio.run(main())
