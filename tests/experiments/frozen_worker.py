"""A program that freezes a worker process and then does nothing, until it is killed itself."""

import asyncio
import sys
from pathlib import Path

import uvloop

from harness.experiments.lab import Scene
from harness.faults import frozen_process


async def main(url: str, folder: str) -> None:
    scene = Scene("hang", Path(folder), ttl=60.0)
    async with scene.worker("A", url, work=60.0) as worker:
        worker.go()
        await worker.track.until("granted")
        async with frozen_process(scene.journal, worker.pid):
            sys.stdout.write(f"{worker.pid}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
