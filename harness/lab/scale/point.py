"""One point of a curve: a real run of the engine, and the figures that an experiment compares."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.config import RunConfig
from harness.history import History, Row, load_run
from harness.judge.checkers import verdict_of
from harness.judge.cycle import Cycle, measure_cycle
from harness.lab import Lab
from harness.lab.scale.usage import Usage, usage_of
from harness.load.run import run_load
from harness.load.targets import with_options
from harness.report.model import Summary
from harness.report.summary import TRUST
from harness.resource.process import spawn

_NS = 1e9


@dataclass(frozen=True, slots=True)
class Setting:
    """A lock as an experiment names it: a backend and the options of its client."""

    name: str
    backend: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    setting: Setting
    contenders: int
    rate: float
    duration: float
    patience: float
    work: float = 0.0
    load: str = "above"
    processes: int = 1
    ttl: float = 10.0

    @property
    def name(self) -> str:
        return f"{self.setting.name}, {self.contenders}, work {self.work * 1e3:g} ms, {self.load}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one run showed. Times in milliseconds, CPU in shares of one core."""

    setting: str
    contenders: int
    work_ms: float
    load: str
    """`below`, `at` or `above` capacity."""
    offered_per_s: float
    throughput_per_s: float
    """Accepted writes per second in the resource's own log, from the first to the last."""
    predicted_per_s: float
    """The smaller of what was offered and 1 / (work + write + hand-off), as measured here."""
    cycle: Cycle
    arrival_to_grant_ms: Mapping[str, float]
    acquire_ms: Mapping[str, float]
    release_p50_ms: float
    queue_growth_per_s: float
    """Arrivals per second by which the queue grew while they came."""
    granted: int
    timed_out: int
    failed: int
    client_cpu: float
    server_cpu: float
    fsync_ms: float | None
    """etcd only: how long one sync of Raft's log took, on average."""
    commands_per_acquire: float | None
    bound: str
    verdict: str
    doubts: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list, repr=False, compare=False)

    @property
    def error(self) -> float:
        """How far the prediction is from what was measured, as a share of the latter."""
        return abs(self.predicted_per_s / self.throughput_per_s - 1) if self.throughput_per_s else 1.0

    def to_json(self) -> dict[str, Any]:
        figures = asdict(self)
        del figures["rows"], figures["cycle"]
        rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
        return rounded | {"prediction_error": round(self.error, 4), "terms_ms": self._terms_ms()}

    def _terms_ms(self) -> dict[str, float]:
        cycle = self.cycle
        return {
            "cycles": cycle.count,
            "work": cycle.work * 1e3,
            "write": cycle.write * 1e3,
            "release": cycle.release * 1e3,
            "handoff": (cycle.handoff - cycle.release) * 1e3,
            "saturated": 2 * cycle.count > cycle.holds,
        }


class Bench:
    """Where the points of one experiment are measured: the lab's servers, a resource for each."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._resources: dict[str, str] = {}

    async def measure(self, work: Workload) -> Point:
        """Run the engine against the lab's server of that backend; the run's folder is kept in the lab's.

        :raises ServerMissing: the server is not installed.
        :raises UsageError, ServerError: the run could not begin.
        """
        lab, setting = self.lab, work.setting
        server = await lab.lock_server(setting.backend)
        name = f"{setting.name.replace(' ', '-')}-{work.contenders}-{work.work * 1e3:g}ms-{work.load}"
        config = RunConfig(
            backend=setting.backend,
            url=with_options(server.url, setting.options),
            resource_url=await self._resource(setting.backend),
            contenders=work.contenders,
            rate=work.rate,
            duration=work.duration,
            timeout=work.patience,
            work=work.work,
            ttl=work.ttl,
            processes=work.processes,
            seed=lab.seed,
            out=str(lab.folder / "points" / name),
        )
        before = await usage_of(server.nodes)
        finished = await run_load(config)
        used = (await usage_of(server.nodes)).since(before)
        history = await asyncio.to_thread(load_run, finished.folder)
        return _point(work, finished.summary, history, used)

    async def _resource(self, backend: str) -> str:
        """A resource that keeps everything in memory, for all runs on one lock server.

        It is not what is measured: the sync of a disk is longer than most hand-offs and would hide
        them. One for each server, because fences of several servers cannot be compared.
        """
        if backend not in self._resources:
            self._resources[backend] = (await self.lab.enter(spawn(store="memory"))).url
        return self._resources[backend]


def _point(work: Workload, summary: Summary, history: History, used: Usage) -> Point:
    rows, latency = history.rows, summary.latency_ms
    cycle = measure_cycle(rows, work.duration, work.patience)
    return Point(
        setting=work.setting.name,
        contenders=work.contenders,
        work_ms=work.work * 1e3,
        load=work.load,
        offered_per_s=work.rate,
        throughput_per_s=pace(entry.decided for entry in history.log or () if entry.accepted),
        predicted_per_s=cycle.served(work.rate),
        cycle=cycle,
        arrival_to_grant_ms=asdict(latency.arrival_to_grant.survivors),
        acquire_ms=asdict(latency.acquire.survivors),
        release_p50_ms=latency.release.p50,
        queue_growth_per_s=queue_growth(rows, work.duration),
        granted=summary.arrivals.acquired,
        timed_out=summary.arrivals.timed_out,
        failed=summary.arrivals.failed,
        client_cpu=max(summary.client.cpu, default=0.0),
        server_cpu=used.cpu / max(summary.duration_s, 1e-3),
        fsync_ms=used.mean_sync_ms,
        commands_per_acquire=summary.backend.commands_per_acquire,
        bound=summary.bound.name,
        # What speaks against the generator stands beside it, as `doubts`.
        verdict=verdict_of({name: check for name, check in summary.checks.items() if name != TRUST}),
        doubts=list(summary.doubts),
        rows=rows,
    )


def pace(times: Iterable[int]) -> float:
    """Events per second, from the first to the last."""
    ordered = sorted(times)
    return (len(ordered) - 1) * _NS / (ordered[-1] - ordered[0]) if len(ordered) > 1 else 0.0


def queue_growth(rows: list[Row], duration: float) -> float:
    """By how much per second arrivals outran grants while they came."""
    end = duration * _NS
    waiting = sum(row.granted is None or row.granted > end for row in rows if row.intended <= end)
    return waiting / duration
