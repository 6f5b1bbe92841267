"""Take a lock, do something, give it back: `python examples/quickstart.py [URL]`."""

import asyncio
import sys

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"


async def main() -> None:
    async with asyncdlock.connect(URL) as locks:
        async with locks.hold("account:42", ttl=10.0, timeout=5.0) as handle:
            # Send the fence with every write: the store refuses one that is out of date.
            print(f"holding {handle.key} with fence {handle.fence}")


asyncio.run(main())
