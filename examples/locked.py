"""A function that runs under a lock named after its arguments: `python examples/locked.py [URL]`."""

import asyncio
import sys

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
locks = asyncdlock.connect(URL)  # sends nothing yet, so it can be at the top of a module


@locks.locked("account:{account_id}", timeout=30.0)
async def pay(account_id: int, amount: int, *, handle: asyncdlock.Handle | None = None) -> None:
    assert handle is not None, "the lock fills it"
    print(f"paying {amount} from {handle.key} with fence {handle.fence}")


async def main() -> None:
    async with locks:
        await asyncio.gather(pay(42, 10), pay(42, amount=20), pay(43, 30))


asyncio.run(main())
