"""python -m bench.renewals: what ten thousand held locks cost while they renew; writes bench/results/.

Every lock is renewed each third of its TTL by the watchdog of its client. Measured is a whole number of
such thirds, after all are held: CPU of the client and of the server as a share of one core, the
renewals themselves, and the commands that they took. About forty seconds.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import uvloop

import asyncdlock
from asyncdlock._inside import backend_of, counts_of
from bench.contest import TWO_CORES, Placement
from bench.peers import say, server_version
from bench.save import add_output, show
from bench.surroundings import describe, in_words
from harness import servers
from harness.servers import RedisNode

BOUND = 10.0
"""Per cent of one core that the client may take at most."""


@dataclass(frozen=True, slots=True)
class Case:
    """How the locks come to be held."""

    name: str
    scheme: str
    spread: bool
    """Over a third of the TTL, so that a few are due at any time; otherwise most are due at once."""


CASES = (
    Case("redis, taken at once", "redis", spread=False),
    Case("redis, taken one after the other", "redis", spread=True),
    Case("redis-queue, taken one after the other", "redis-queue", spread=True),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the renewals of one case took."""

    client_core_percent: float
    server_core_percent: float
    renewals: int
    renewals_per_lock: float
    commands_per_renewal: float
    client_cpu_us_per_renewal: float
    lost: int


async def measure(server: RedisNode, case: Case, *, count: int, ttl: float, thirds: int) -> Cost:
    """Hold `count` locks for so many thirds of their TTL."""
    await server.command("FLUSHALL")
    process = psutil.Process(server.pid)
    async with asyncdlock.connect(server.url.replace("redis", case.scheme, 1)) as locks:
        handles = await _take(locks, count, over=ttl / 3 if case.spread else 0.0, ttl=ttl)
        renewed, commands = _renewed(locks), backend_of(locks).commands
        server_cpu, cpu, began = sum(process.cpu_times()[:2]), time.process_time(), time.perf_counter()
        await asyncio.sleep(thirds * ttl / 3)
        cpu = time.process_time() - cpu
        seconds = time.perf_counter() - began
        server_cpu = sum(process.cpu_times()[:2]) - server_cpu
        renewals = _renewed(locks) - renewed
        commands = backend_of(locks).commands - commands
        lost = sum(not handle.held for handle in handles)
        await asyncio.gather(*(handle.release() for handle in handles))
    return Cost(
        client_core_percent=100 * cpu / seconds,
        server_core_percent=100 * server_cpu / seconds,
        renewals=renewals,
        renewals_per_lock=renewals / count,
        commands_per_renewal=commands / max(1, renewals),
        client_cpu_us_per_renewal=1e6 * cpu / max(1, renewals),
        lost=lost,
    )


async def _take(
    locks: asyncdlock.LockClient, count: int, *, over: float, ttl: float
) -> list[asyncdlock.Handle]:
    """Hold so many locks, taken evenly over so many seconds."""
    handles: list[asyncdlock.Handle] = []
    began = time.monotonic()
    step = 100
    for first in range(0, count, step):
        numbers = range(first, min(first + step, count))
        handles += await asyncio.gather(*(locks.acquire(f"held:{number}", ttl=ttl) for number in numbers))
        due = began + over * len(handles) / count
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    return handles


def _renewed(locks: asyncdlock.LockClient) -> int:
    return counts_of(locks).renewals["renewed"]


async def run(placement: Placement, *, count: int, ttl: float, thirds: int) -> dict[str, Any]:
    """All cases on one server; the outcome as it is written."""
    described = describe()
    os.sched_setaffinity(0, placement.clients)
    costs: dict[str, Any] = {}
    async with servers.redis() as server:
        os.sched_setaffinity(server.pid, placement.server)
        for case in CASES:
            say(f"{count} locks: {case.name}")
            costs[case.name] = asdict(await measure(server, case, count=count, ttl=ttl, thirds=thirds))
        info: dict[str, str] = await server.command("INFO", "server")
    return {
        "command": " ".join(["python -m bench.renewals", *sys.argv[1:]]),
        "environment": described | {"server": server_version(info)},
        "placement": placement.name,
        "locks": count,
        "ttl": ttl,
        "seconds": thirds * ttl / 3,
        "costs": costs,
    }


def _markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    where = outcome["environment"]
    yield f"# {outcome['locks']:,} held locks that renew"
    yield ""
    yield f"`{outcome['command']}`: a TTL of {outcome['ttl']:g} s, {outcome['seconds']:g} s each,"
    yield f"client and server on {outcome['placement']}. {where['server']}. {in_words(where)}"
    yield f"The client is to take less than {BOUND:g} % of one core."
    yield ""
    yield "| | client, % of a core | server | renewals a lock | commands a renewal | client CPU µs | lost |"
    yield "|---|---|---|---|---|---|---|"
    for name, cost in outcome["costs"].items():
        mark = "" if cost["client_core_percent"] < BOUND else " **missed**"
        yield (
            f"| {name} | {cost['client_core_percent']:.2f}{mark} | {cost['server_core_percent']:.2f} "
            f"| {cost['renewals_per_lock']:.2f} | {cost['commands_per_renewal']:.4f} "
            f"| {cost['client_cpu_us_per_renewal']:.2f} | {cost['lost']} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.renewals", description=__doc__.splitlines()[0])
    parser.add_argument("--locks", type=int, default=10_000)
    parser.add_argument("--ttl", type=float, default=10.0)
    parser.add_argument("--thirds", type=int, default=3, help="how many thirds of the TTL to measure")
    add_output(parser)
    options = parser.parse_args()
    outcome = uvloop.run(run(TWO_CORES, count=options.locks, ttl=options.ttl, thirds=options.thirds))
    show("renewals", outcome, _markdown(outcome), options)


if __name__ == "__main__":
    main()
