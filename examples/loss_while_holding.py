"""A lost lease ends the body: `python examples/loss_while_holding.py [URL]`."""

import asyncio
import sys

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"


async def main() -> None:
    async with asyncdlock.connect(URL) as locks:
        try:
            # Not renewed, to lose it for certain. With renewal, a server that goes away has the same effect.
            async with locks.hold("report:7", ttl=2.0, renew=False) as handle:
                print(f"holding {handle.key}; {handle.remaining():.1f} s left")
                await asyncio.sleep(60)
                print("never reached: the body is cancelled when the lease ends")
        except asyncdlock.LockLost as lost:
            print(f"stopped in time: {lost}")


asyncio.run(main())
