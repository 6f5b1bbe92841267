"""A soak: hours of unhurried load without a fault, and whether anything grows meanwhile.

A figure is flat if its slope is below what is allowed, at 95 %. It rises if the slope is above that and it
has grown by what is allowed in an hour: heaps that still fill in the first minutes do not count for an hour.
Where neither can be said, the soak was too short for its noise: that is unknown, and no pass.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import psutil

from harness.judge.checkers import Verdict, worst
from harness.judge.statistics import Slope, slope_interval
from harness.lab.event import Event
from harness.lab.forkserver import Role
from harness.lab.participant import Forkserver, Participant
from harness.lab.rig import Rig, open_rig
from harness.load.pacer import NANOSECONDS
from harness.servers.catalogue import INSTALLATIONS
from harness.servers.redis_node import RedisNode
from harness.torture.leftovers import left_over
from harness.torture.soak_load import KEYS, soak_load

PROCESSES = 2
_TTL = 2.0
_SAMPLES = 240
_LEAST_EVERY = 0.1
_LOOKS = 15
"""In each sample's time, at what comes and goes: rare looks would seldom meet the lowest that it falls to."""
_WARM_UP = 0.25  # of the soak: caches and heaps fill
_STARTS_WITHIN = _ENDS_WITHIN = 60.0
_HOUR = 3600.0
_WAIT = "median wait, in median writes"
"""As a ratio: what the machine does besides makes both of them slower."""


class Gauge(NamedTuple):
    """What is watched, and how fast it may grow."""

    of: str
    what: str
    unit: str
    allowed: float
    """In its unit per hour; of a wait a share of the mean, since machines differ."""
    floor: bool = False
    """It comes and goes with the load: what is left behind raises the lowest that it falls to."""

    @property
    def name(self) -> str:
        return f"{self.of}: {self.what}"


def _memory(of: str) -> Gauge:
    return Gauge(of, "memory", "MiB", 2.0)


def _descriptors(of: str) -> Gauge:
    return Gauge(of, "descriptors", "", 1.0, floor=True)


def _tasks(of: str) -> Gauge:
    return Gauge(of, "tasks", "", 1.0, floor=True)


def _wait(of: str) -> Gauge:
    return Gauge(of, _WAIT, "", 0.2)


@dataclass(slots=True)
class GaugeSamples:
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trend:
    """What became of a figure."""

    figure: Gauge
    mean: float
    hours: float
    """How long it was judged."""
    slope: Slope | None
    """Per hour; `None`: too few samples."""

    @property
    def allowed(self) -> float:
        """Per hour, in the figure's unit."""
        share = self.figure.what == _WAIT
        return self.figure.allowed * (self.mean if share else 1.0)

    @property
    def verdict(self) -> Verdict:
        if self.slope is None:
            return "unknown"
        if self.slope.low * min(1.0, self.hours) > self.allowed:
            return "violated"
        return "ok" if self.slope.high <= self.allowed else "unknown"


def trend_of(figure: Gauge, series: GaugeSamples) -> Trend:
    """The trend behind the warm-up."""
    last = series.times[-1] if series.times else 0.0
    kept = [pair for pair in zip(series.times, series.values, strict=True) if pair[0] >= _WARM_UP * last]
    hours, values = [at / _HOUR for at, _ in kept], [value for _, value in kept]
    mean, length = (fmean(values), hours[-1] - hours[0]) if values else (0.0, 0.0)
    return Trend(figure, mean, length, slope_interval(hours, values, min if figure.floor else fmean))


@dataclass(slots=True)
class SoakResult:
    seconds: float
    findings: list[str] = field(default_factory=list)
    series: dict[Gauge, GaugeSamples] = field(default_factory=dict)
    cycles: int = 0
    failed: int = 0

    def trends(self) -> list[Trend]:
        return [trend_of(figure, series) for figure, series in self.series.items()]

    @property
    def verdict(self) -> Verdict:
        own: Verdict = "violated" if self.findings else "ok"
        return worst([own, *(trend.verdict for trend in self.trends())])

    def add(self, figure: Gauge, at: float, value: float) -> None:
        series = self.series.setdefault(figure, GaugeSamples())
        series.times.append(at)
        series.values.append(value)


async def soak(
    backend: str, seconds: float, seed: int, forkserver: Forkserver, folder: Path, *, role: Role = soak_load
) -> SoakResult:
    """Run the load, then close everything and look at what is left.

    :raises ServerMissing: the backend's server is not installed.
    :raises ServerFailed: a server does not start.
    :raises NeverHappened, TimeoutError: a process of the load does not start.
    """
    result = SoakResult(seconds)
    every = max(_LEAST_EVERY, seconds / _SAMPLES)
    async with open_rig(backend, forkserver, folder, processes=PROCESSES, log=False) as rig:
        async with AsyncExitStack() as stack:
            crew = []
            for number in range(PROCESSES):
                spec = {
                    "backend": backend,
                    "url": rig.url,
                    "resource": rig.resource.url,
                    "seed": seed,
                    "process": number,
                    "ttl": max(_TTL, INSTALLATIONS[backend].shortest_ttl),
                    "every": every,
                }
                member = _Member(f"process {number}", result)
                enter = forkserver.participant(member.name, role, spec, member.heard)
                crew.append((member, await stack.enter_async_context(enter)))
            async with asyncio.timeout(_STARTS_WITHIN):
                await asyncio.gather(*(member.ready.wait() for member, _ in crew))
            began = time.monotonic()
            for member, participant in crew:
                member.began = began * NANOSECONDS
                participant.go()
            await _watch(rig, [participant for _, participant in crew], result, began, every)
            await _stop(crew, result)
        result.findings += await left_over(rig, KEYS)
    return result


class _Member:
    """What one process of the load says."""

    def __init__(self, name: str, result: SoakResult) -> None:
        self.name = name
        self.began = 0.0
        self.ready, self.done = asyncio.Event(), asyncio.Event()
        self._result = result
        self._last: Mapping[str, int] = {"cycles": 0, "failed": 0, "stale": 0}

    def heard(self, event: Event) -> None:
        if event.name == "ready":
            self.ready.set()
        elif event.name == "sample":
            self._sample(event)
        elif event.name == "done":
            self._done(event.details)
            self.done.set()

    def _sample(self, event: Event) -> None:
        told, result = event.details, self._result
        at = (event.at - self.began) / NANOSECONDS
        result.add(_tasks(self.name), at, told["tasks"])
        if "wait" in told:
            result.add(_wait(self.name), at, told["wait"])
        result.cycles += told["cycles"] - self._last["cycles"]
        result.failed += told["failed"] - self._last["failed"]
        if refused := told["stale"] - self._last["stale"]:
            result.findings.append(
                f"{self.name}: {refused} writes refused of holders who were told of no loss"
            )
        self._last = told

    def _done(self, told: Mapping[str, Any]) -> None:
        self._result.findings += [f"{self.name} left a task behind: {task}" for task in told["tasks"]]
        before, after = told["before"]["descriptors"], told["after"]["descriptors"]
        if after > before:
            self._result.findings.append(
                f"{self.name} had {before} descriptors open before and {after} after"
            )


async def _watch(
    rig: Rig, crew: Sequence[Participant], result: SoakResult, began: float, every: float
) -> None:
    """Look at processes and servers until the time is over, or somebody has ended."""
    # Who has ended may be gone before we have heard of it; `_stop` tells of it.
    with contextlib.suppress(psutil.NoSuchProcess):
        watched = {one.name: psutil.Process(one.pid) for one in crew}
        watched |= {f"server {number}": psutil.Process(node.pid) for number, node in enumerate(rig.nodes)}
        watched["resource"] = psutil.Process(rig.resource.pid)
        while (at := time.monotonic() - began) < result.seconds:
            fewest = await _fewest_descriptors(watched, every)
            if any(one.over.is_set() for one in crew):
                return
            for name, process in watched.items():
                result.add(_memory(name), at, process.memory_info().rss / 2**20)
                result.add(_descriptors(name), at, fewest[name])
            for number, node in enumerate(rig.nodes):
                if isinstance(node, RedisNode):
                    keys, used = await _stored(node)
                    result.add(Gauge(f"server {number}", "keys", "", 1.0, floor=True), at, keys)
                    result.add(Gauge(f"server {number}", "memory in use", "MiB", 0.5), at, used)


async def _fewest_descriptors(watched: Mapping[str, psutil.Process], every: float) -> dict[str, int]:
    """The fewest that each had open in so many seconds."""
    looks: dict[str, list[int]] = {name: [] for name in watched}
    for _ in range(_LOOKS):
        await asyncio.sleep(every / _LOOKS)
        for name, process in watched.items():
            looks[name].append(process.num_fds())
    return {name: min(counts) for name, counts in looks.items()}


async def _stored(node: RedisNode) -> tuple[int, float]:
    """The keys of a server, and the MiB that they take."""
    used = (await node.command("INFO", "memory"))["used_memory"]
    return await node.command("DBSIZE"), used / 2**20


async def _stop(crew: Sequence[tuple[_Member, Participant]], result: SoakResult) -> None:
    for member, participant in crew:
        participant.tell("stop")
        try:
            async with asyncio.timeout(_ENDS_WITHIN):
                await participant.over.wait()
        except TimeoutError:
            result.findings.append(f"{member.name} did not end within {_ENDS_WITHIN:g} s: somebody is stuck")
            continue
        if not member.done.is_set():
            result.findings.append(f"{member.name} ended by itself: see processes.log")
