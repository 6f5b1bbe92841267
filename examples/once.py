"""Three replicas, two ticks, each run once: `python examples/once.py [URL]`."""

import asyncio
import sys

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
runs: list[str] = []
enough = asyncio.Event()


async def replica(locks: asyncdlock.LockClient) -> None:
    async for tick in locks.once("report", every="200ms"):
        async with tick:
            runs.append(f"{tick.at:%H:%M:%S.%f}")
            print(f"report for {runs[-1]}, {tick.missed} missed before it")
        if len(runs) == 2:
            enough.set()


async def main() -> None:
    async with asyncdlock.connect(URL) as locks:
        replicas = [asyncio.create_task(replica(locks)) for _ in range(3)]
        await enough.wait()
        for task in replicas:
            task.cancel()
        await asyncio.wait(replicas)
    print("each tick once" if len(set(runs)) == len(runs) else "a tick ran twice")


asyncio.run(main())
