"""A program that freezes a worker process and then does nothing, until it is killed itself."""

import asyncio
import sys
from pathlib import Path

import uvloop

from harness.faults import frozen_process
from harness.lab import Scene
from tests.experiments.labs import quick_lab


async def main(url: str, folder: str) -> None:
    async with quick_lab(Path(folder)) as lab:
        await hang(lab.scene("hang", ttl=60.0), url)


async def hang(scene: Scene, url: str) -> None:
    async with scene.worker("A", url, work=60.0) as worker:
        worker.go()
        await worker.track.until("granted")
        async with frozen_process(scene.journal, worker.pid):
            sys.stdout.write(f"{worker.pid}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
