"""python -m bench.etcd_wedge: etcd's server-side Lock stops after a client died with waiters pending.

Five contenders of one process share a lock with a hundred of another, which is killed (-9). When
every lease of the dead has expired, the five should go on. Through etcd's Lock service they do
not; with the same keys and a queue in the client they do.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop

import asyncdlock
from bench.etcd_lock_service import LockService
from bench.subject import Lock, PeerLock
from bench.subjects import OurLock
from harness import servers
from harness.servers.etcd_cluster import EtcdFlavour

FLAVOURS: tuple[EtcdFlavour, ...] = ("wheel", "system")
SERVICE, OURS = "server-side Lock", "asyncdlock"
_FOR_EVER, _SHORT = 3600, 4
_SURVIVORS, _CROWD, _CROWDS = 5, 100, 3


async def contend(subject: str, address: str, contenders: int, lease: int) -> None:
    """In a child: acquire and release for ever, and tell how often after every tenth of a second."""
    sections = 0
    service = LockService(address)
    client = asyncdlock.connect(f"etcd://{address}")

    async def one() -> None:
        nonlocal sections
        lock: Lock = OurLock(client, "wedge", ttl=_SHORT)
        if subject == SERVICE:
            lock = PeerLock(service.lock("wedge", lease_ttl=lease))
        while True:
            held = await lock.acquire()
            await asyncio.sleep(0.002)
            await lock.release(held)
            sections += 1

    tasks = [asyncio.create_task(one()) for _ in range(contenders)]
    while not any(task.done() for task in tasks):
        await asyncio.sleep(0.1)
        print(sections, flush=True)
    await asyncio.gather(*tasks)


class Child:
    """A process with contenders, and how far it has come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.sections = 0
        self.started = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.sections = int(line)
            self.started.set()

    async def progress(self, seconds: float) -> int:
        before = self.sections
        await asyncio.sleep(seconds)
        return self.sections - before

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reader


@asynccontextmanager
async def child(subject: str, address: str, contenders: int, lease: int) -> AsyncIterator[Child]:
    arguments = ["-m", "bench.etcd_wedge", subject, address, str(contenders), str(lease)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    running = Child(process)
    try:
        await running.started.wait()
        yield running
    finally:
        await running.kill()


async def show(subject: str, flavour: EtcdFlavour) -> None:
    """Sections of the survivors in three seconds: alone, and after a crowd has died and expired."""
    async with servers.etcd(flavour=flavour) as cluster:
        address = cluster[0].address
        version = (await cluster[0].call("maintenance/status"))["version"]
        async with child(subject, address, _SURVIVORS, _FOR_EVER) as survivors:
            done = [await survivors.progress(3)]
            # Nearly always the first crowd is enough.
            while done[-1] and len(done) <= _CROWDS:
                async with child(subject, address, _CROWD, _SHORT) as crowd:
                    await asyncio.sleep(2)
                    await crowd.kill()
                await asyncio.sleep(2 * _SHORT)
                done.append(await survivors.progress(3))
    after = ", ".join(map(str, done[1:]))
    print(f"etcd {version}, {subject:16} sections alone: {done[0]}; after each crowd: {after}", flush=True)


async def main() -> None:
    for flavour in FLAVOURS:
        for subject in (SERVICE, OURS):
            await show(subject, flavour)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("child", nargs="*", help="what a child is told: subject, address, contenders, lease")
    told = parser.parse_args().child
    if told:
        uvloop.run(contend(told[0], told[1], int(told[2]), int(told[3])))
    else:
        uvloop.run(main())
