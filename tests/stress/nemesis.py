"""What breaks meanwhile: processes are frozen and killed, servers freeze, connections and scripts go."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import redis.asyncio

from harness.servers import Server

LONGEST_FREEZE = 2.5
"""Seconds; longer than some leases."""


class Nemesis:
    """Injects one random fault after the other until it is cancelled, and counts them."""

    def __init__(
        self,
        chance: random.Random,
        nodes: Sequence[Server],
        *,
        speaks_redis: bool,
        survives_kills: bool,
        workers: Callable[[], Sequence[asyncio.subprocess.Process]],
    ) -> None:
        self.faults: Counter[str] = Counter()
        self._chance = chance
        self._nodes = nodes
        self._workers = workers
        self._kinds: list[Callable[[], Awaitable[None]]] = [self.freeze_worker, self.kill_worker]
        if nodes:
            self._kinds.append(self.freeze_server)
        if speaks_redis:
            self._kinds += [self.cut_connections, self.flush_scripts]
        if survives_kills:
            self._kinds.append(self.kill_server)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.1, 1.5))
            fault = self._chance.choice(self._kinds)
            self.faults[fault.__name__] += 1
            await fault()

    async def freeze_worker(self) -> None:
        worker = self._chance.choice(self._workers())
        if worker.returncode is None:
            worker.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(self._chance.uniform(0.01, LONGEST_FREEZE))
            finally:
                if worker.returncode is None:
                    worker.send_signal(signal.SIGCONT)

    async def kill_worker(self) -> None:
        worker = self._chance.choice(self._workers())
        if worker.returncode is None:
            worker.kill()

    async def freeze_server(self) -> None:
        node = self._chance.choice(self._nodes)
        node.pause()
        try:
            await asyncio.sleep(self._chance.uniform(0.01, LONGEST_FREEZE))
        finally:
            node.resume()

    async def kill_server(self) -> None:
        node = self._chance.choice(self._nodes)
        node.kill()
        try:
            await asyncio.sleep(self._chance.uniform(0.0, 0.5))
        finally:
            await node.start()

    async def cut_connections(self) -> None:
        for kind in self._chance.sample(("normal", "pubsub"), self._chance.choice((1, 2))):
            await self._tell("CLIENT", "KILL", "TYPE", kind)

    async def flush_scripts(self) -> None:
        await self._tell("SCRIPT", "FLUSH")

    async def _tell(self, *words: str) -> None:
        node = self._chance.choice(self._nodes)
        client = redis.asyncio.Redis(host=node.host, port=node.port)
        try:
            await client.execute_command(*words)
        finally:
            await client.aclose()
