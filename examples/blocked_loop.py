"""A body that blocks its event loop for longer than a lease: `python examples/blocked_loop.py URL`."""

import asyncio
import sys
import time

import asyncdlock

URL = sys.argv[1]  # a server: memory:// lives in the event loop itself


async def main() -> None:
    async with asyncdlock.connect(URL, renew_in="thread", max_hold=60.0) as locks:
        async with locks.hold("report", ttl=1.0) as handle:
            time.sleep(3.0)  # noqa: ASYNC251 - a library that computes, or talks to its server by itself
            handle.check()
            print(f"still holding {handle.key} after three leases")


asyncio.run(main())
