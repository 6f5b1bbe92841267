"""Runs a subject on a workload: a real server, real processes, pinned to cores, measured on both sides."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psutil

from bench.figures import Figures, figures
from bench.subjects import SUBJECTS
from bench.work import Tally, Work
from harness.servers import RedisNode

# What reaches the server from outside its scripts, for libraries that do not count themselves.
_OUTER_COMMANDS = ("cmdstat_set", "cmdstat_eval", "cmdstat_evalsha", "cmdstat_blpop")

# Contenders on a hot key beyond which a round grows with their number.
LONGER_BEYOND = 500
# Seconds that a process of a round needs to start, import its library and end.
_STARTING = 0.8


@dataclass(frozen=True, slots=True)
class Placement:
    """On which cores the clients and the server run: it moves a round trip ninefold."""

    name: str
    clients: tuple[int, ...]
    server: tuple[int, ...]


TWO_CORES = Placement("two cores", (0,), (1,))
ONE_CORE = Placement("one core", (0,), (0,))


@dataclass(frozen=True, slots=True)
class Workload:
    """How many contend, over how many processes, and for what."""

    name: str
    contenders: int
    processes: int
    hot: bool

    def round_seconds(self, seconds: float) -> float:
        """A round on a hot key lasts until even the slowest of ours has served everybody several times."""
        return seconds * max(1.0, self.contenders / LONGER_BEYOND) if self.hot else seconds

    @property
    def ramp(self) -> float:
        """Seconds in which connections are opened and queues filled."""
        return 0.3 + self.contenders / 1000

    @property
    def start(self) -> float:
        """Seconds until all processes are up and contend; one alone need not wait for others."""
        return 0.0 if self.processes == 1 else 3.0

    def estimate(self, seconds: float) -> float:
        """About how long a round takes in all."""
        return _STARTING + max(self.ramp, self.start) + self.round_seconds(seconds)


WORKLOADS = (
    Workload("own keys, 1 task", 1, 1, hot=False),
    Workload("own keys, 100 tasks", 100, 1, hot=False),
    Workload("hot key, 50 contenders, 1 process", 50, 1, hot=True),
    Workload("hot key, 200 contenders, 1 process", 200, 1, hot=True),
    Workload("hot key, 1000 contenders, 1 process", 1000, 1, hot=True),
    Workload("hot key, 200 contenders, 4 processes", 200, 4, hot=True),
    Workload("hot key, 1000 contenders, 4 processes", 1000, 4, hot=True),
)


async def compete(
    server: RedisNode, subject: str, workload: Workload, placement: Placement, seconds: float
) -> Figures:
    """One round: of `seconds`, or longer where many contend for one key.

    :raises RuntimeError: a process failed; carries what it said.
    """
    await server.command("FLUSHALL")
    await server.command("CONFIG", "RESETSTAT")
    process = psutil.Process(server.pid)
    os.sched_setaffinity(server.pid, placement.server)
    before = sum(process.cpu_times()[:2])
    share, rest = divmod(workload.contenders, workload.processes)
    start_at = time.monotonic() + workload.start
    jobs = [
        Work(
            subject=subject,
            url=server.url,
            contenders=share + (number < rest),
            seconds=workload.round_seconds(seconds),
            hot=workload.hot,
            ramp=workload.ramp,
            start_at=start_at,
            process=number,
            cores=placement.clients,
        )
        for number in range(workload.processes)
    ]
    tallies = await asyncio.gather(*(run_in_process(job) for job in jobs))
    server_cpu = sum(process.cpu_times()[:2]) - before
    return figures(
        tallies,
        hot=workload.hot,
        server_cpu=server_cpu,
        server_commands=await _outer_commands(server),
    )


async def run_in_process(job: Work, *subjects: str) -> Tally:
    """Let a process of its own do the work; `subjects` (`module:name`) are known to it beside the usual.

    :raises RuntimeError: it failed; carries what it said.
    """
    return await tally_of(
        [sys.executable, "-m", "bench.worker", json.dumps(asdict(job)), *subjects], job.subject
    )


async def tally_of(command: Sequence[str], subject: str) -> Tally:
    """What the process says that does the work.

    :raises RuntimeError: it failed; carries what it said.
    """
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"{subject}: {err.decode()[-2000:]}")
    return Tally(**json.loads(out))


async def _outer_commands(server: RedisNode) -> int:
    counts: dict[str, dict[str, int]] = await server.command("INFO", "commandstats")
    return sum(counts[name]["calls"] for name in _OUTER_COMMANDS if name in counts)


def runnable(names: Sequence[str]) -> list[str]:
    """Those of the subjects whose libraries are installed."""
    return [name for name in names if SUBJECTS[name].installed()]
