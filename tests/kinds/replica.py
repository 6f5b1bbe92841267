"""A replica with a clock of its own: `replica.py URL JOB SKEW UNTIL`; prints the ticks that it ran."""

import asyncio
import json
import sys
import time

import asyncdlock
from asyncdlock.kinds.once import Ticks


async def main(url: str, job: str, skew: float, until: float) -> None:
    ran: list[str] = []

    async def work(locks: asyncdlock.LockClient) -> None:
        async for tick in Ticks(
            locks, job, every=0.5, ttl=10.0, max_hold=None, clock=lambda: time.time() + skew
        ):
            async with tick:
                ran.append(tick.at.isoformat())

    async with asyncdlock.connect(url) as locks:
        try:
            async with asyncio.timeout(until - time.time()):
                await work(locks)
        except TimeoutError:
            pass
    sys.stdout.write(json.dumps(ran))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
