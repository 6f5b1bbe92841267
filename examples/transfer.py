"""Two locks at once, in an order that nobody has to think about: `python examples/transfer.py [URL]`."""

import asyncio
import sys

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
balances = {"account:1": 100, "account:2": 100}


async def transfer(locks: asyncdlock.LockClient, source: str, target: str, amount: int) -> None:
    async with locks.hold_all([source, target], timeout=30.0) as handles:
        balances[source] -= amount
        await asyncio.sleep(0.01)
        balances[target] += amount
        print(f"{source} -> {target}: {amount}, with {len(handles)} fences")


async def main() -> None:
    async with asyncdlock.connect(URL) as locks:
        # The two name the accounts in opposite orders, and still do not wait for each other for ever.
        await asyncio.gather(
            transfer(locks, "account:1", "account:2", 30), transfer(locks, "account:2", "account:1", 10)
        )
    print(balances)


asyncio.run(main())
