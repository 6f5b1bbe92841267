"""`python -m tests.stress --backend B --minutes M --seed S`."""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import servers
from tests.stress.checker import Verdict, check
from tests.stress.events import read_events
from tests.stress.nemesis import LONGEST_FREEZE, Nemesis

_ROOT = Path(__file__).parents[2]
_SLACK = 5.0  # a machine that is busy with faults is late
_STANDSTILL = 1.0  # a busy machine is late by less
_PATIENCE = 3.0  # for how long `redis-queue` and `postgres` believe in a silent process

# Two of them differ by braces only, two by a level: names that a server might confuse.
_KEYS = ["hot", "hot", "{hot}", "warm", "warm/below"]

_LOCAL: tuple[dict[str, Any], ...] = ({}, {"local_handoffs": 0}, {"local_queue": False})


class Field(NamedTuple):
    """Where the fight takes place."""

    nodes: Sequence[servers.Server]
    clients: Sequence[tuple[str, dict[str, Any]]]
    speaks_redis: bool = False
    survives_kills: bool = False
    ttl: float = 1.0
    stall: float = 1.0
    """For how long a lock may stay free though somebody waits, beyond the TTL of a dead holder and the faults
    themselves: what docs/backends/ says."""

    @property
    def gap_bound(self) -> float:
        """For how long a contended lock may stay free: its server is frozen, then who would be next."""
        return self.ttl + self.stall + 2 * LONGEST_FREEZE + _SLACK


@contextlib.asynccontextmanager
async def field(backend: str) -> AsyncIterator[Field]:
    async with contextlib.AsyncExitStack() as stack:
        match backend:
            case "redis" | "redis-queue":
                node = await stack.enter_async_context(servers.redis())
                queue = node.url.replace("redis://", "redis-queue://", 1)
                mixed = [(queue, {**one, "patience": 1.0 if one else _PATIENCE}) for one in _LOCAL]
                clients = [*mixed, (node.url, {})] if backend == "redis-queue" else [(node.url, {})]
                # A frozen process costs the others its patience, and a TTL if it was granted the lock before.
                stall = _PATIENCE + 1.0 if backend == "redis-queue" else 1.0
                yield Field([node], clients, speaks_redis=True, stall=stall)
            case "redlock":
                nodes = await stack.enter_async_context(servers.redis_nodes(5))
                yield Field(
                    [*nodes], [(nodes.url, {}), (nodes.url, {"local_queue": False})], speaks_redis=True
                )
            case "etcd":
                etcd = await stack.enter_async_context(servers.etcd(3))
                clients = [(etcd.url, one) for one in _LOCAL]
                # A new leader gives each lease its TTL again; a frozen member is noticed within four seconds.
                yield Field([*etcd], clients, survives_kills=True, ttl=3.0, stall=3.0 + 4.0)
            case "zookeeper":
                keepers = await stack.enter_async_context(servers.zookeeper(3))
                clients = [(keepers.url, one) for one in _LOCAL]
                # The clock of a session is the leader's, who may be new; a frozen member costs a session.
                yield Field([*keepers], clients, survives_kills=True, ttl=3.0, stall=3.0 + 3.0)
            case "postgres":
                database = await stack.enter_async_context(servers.postgres())
                clients = [(database.url, {**one, "request_timeout": 2.0}) for one in _LOCAL]
                clients.append((database.url, {"pooler": True}))
                # Behind a start of the server each client that died costs a TTL for ten times its patience:
                # of a process four, and some five processes are killed in that time.
                yield Field([database], clients, survives_kills=True, stall=_PATIENCE + 1.0 + 4 * 5 * 1.0)
            case _:
                raise SystemExit(f"no such backend: {backend}")


async def note_standstills(standstills: list[tuple[float, float]]) -> None:
    """From when until when nothing ran, not even this process, which nobody freezes."""
    while True:
        slept = time.monotonic()
        await asyncio.sleep(0.1)
        if time.monotonic() - slept > _STANDSTILL:
            standstills.append((slept, time.monotonic()))


async def fight(backend: str, seconds: float, seed: int, folder: Path) -> tuple[Verdict, Counter[str]]:
    """Run the fight and judge it."""
    chance = random.Random(seed)
    async with field(backend) as ground:
        workers: dict[int, asyncio.subprocess.Process] = {}
        told: list[dict[str, Any]] = []

        async def keep_working(number: int) -> None:
            for life in range(1_000_000):
                order = {
                    "clients": ground.clients,
                    "keys": _KEYS,
                    "ttl": ground.ttl,
                    "seed": seed * 1000 + number * 100 + life,
                    "events": str(folder / f"{number}-{life}.events"),
                    "tasks": 12,
                }
                worker = workers[number] = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "tests.stress.worker", json.dumps(order)),
                    stdout=asyncio.subprocess.PIPE,
                    cwd=_ROOT,
                    env={**os.environ, "PYTHONPATH": str(_ROOT)},
                )
                assert worker.stdout is not None
                report = await worker.stdout.read()
                if report:
                    told.append(json.loads(report))
                code = await worker.wait()
                if stopping:
                    return
                # 255: killed like the others, but somebody else in this process collected it first.
                assert code < 0 or code == 255, f"worker {number} ended by itself with {code}"

        stopping = False
        nemesis = Nemesis(
            chance,
            ground.nodes,
            speaks_redis=ground.speaks_redis,
            survives_kills=ground.survives_kills,
            workers=lambda: list(workers.values()),
        )
        lives = [asyncio.create_task(keep_working(number)) for number in range(4)]
        breaking = asyncio.create_task(nemesis.run())
        standstills: list[tuple[float, float]] = []
        watching = asyncio.create_task(note_standstills(standstills))
        try:
            await asyncio.wait({breaking, *lives}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in (breaking, *lives) if task.done()]
            stopping = True
            breaking.cancel()
            await asyncio.wait({breaking})
            for worker in workers.values():
                if worker.returncode is None:
                    worker.terminate()
            _, hanging = await asyncio.wait(lives, timeout=120)
        finally:
            watching.cancel()
            for worker in workers.values():
                if worker.returncode is None:
                    worker.kill()
        for task in ended:
            task.result()  # a worker or the nemesis failed
    verdict = check(read_events(folder), gap_bound=ground.gap_bound, standstills=standstills)
    if hanging:
        verdict.broken.append(f"{len(hanging)} processes did not end within two minutes of SIGTERM")
    errors: Counter[str] = Counter()
    for report in told:
        errors.update(report["errors"])
        verdict.broken += [f"a task was left behind: {task}" for task in report["left_over"]]
    return verdict, nemesis.faults + errors


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument(
        "--backend", default="redis-queue", help="redis, redis-queue, redlock, etcd, zookeeper or postgres"
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    # SIGTERM alone would end it at once, and leave its workers and servers behind.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="asyncdlock-stress-") as folder:
        verdict, counted = asyncio.run(fight(given.backend, given.minutes * 60, given.seed, Path(folder)))
    print(f"{given.backend}: {verdict.grants} grants, seed {given.seed}")
    print(f"longest idle gap {verdict.longest_gap:.2f} s of {verdict.gap_bound:.2f} s that may be")
    print(", ".join(f"{name} {number}" for name, number in sorted(counted.items())))
    for sentence in verdict.broken:
        print(f"BROKEN {sentence}")
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
