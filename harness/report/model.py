"""What a run found out, as typed values: `summary.json` before it is written and after it is read.

The names are those of the document; `summary_json` is the one place that turns one into the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.config import RunConfig
from harness.judge.bounds import Bound
from harness.judge.checkers.fairness import Order
from harness.judge.checkers.result import CheckResult, Verdict
from harness.judge.cycle import Cycle

OPTIONAL = {"optional": True}
"""Metadata of a field that is left out of the document when it is `None`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Percentiles of a latency, in milliseconds."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    max: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Figures):
    """One latency of a run. Arrivals that gave up count with the time that they waited."""

    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """95 % confidence intervals of the percentiles, where there are enough values for one."""
    bounds: tuple[str, ...] = ()
    """Percentiles that are lower bounds: those who gave up would have waited longer."""
    granted: Figures | None = field(default=None, metadata=OPTIONAL)
    """The same without those who gave up, where anybody did."""
    early: int | None = field(default=None, metadata=OPTIONAL)
    """Of `schedule_lag`: arrivals that were let go before their time."""
    min: float | None = field(default=None, metadata=OPTIONAL)

    @property
    def survivors(self) -> Figures:
        """Of those who were granted the lock."""
        return self.granted or Figures(
            p50=self.p50, p90=self.p90, p99=self.p99, p999=self.p999, max=self.max, count=self.count
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    arrival_to_grant: Latency = Latency()
    acquire: Latency = Latency()
    hold: Latency = Latency()
    write: Latency = Latency()
    release: Latency = Latency()
    schedule_lag: Latency = Latency()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    offered: int = 0
    dispatched: int = 0
    acquired: int = 0
    timed_out: int = 0
    failed: int = 0
    lost: int = 0
    abandoned: int = 0
    backlog_max: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFigures:
    """What the resource decided, from its own log; from the replies where there is no log."""

    accepted: int = 0
    stale_rejections: int = 0
    source: str = "log"
    stale_rejections_reported: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    name: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    commands: int | None = None
    commands_per_acquire: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    cpu: tuple[float, ...] = ()
    max_loop_lag_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    count: int = 0
    total_ms: float = 0.0
    longest_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFigures:
    """One of several generators that made a run together."""

    share: int
    host: str = ""
    offered: int = 0
    acquired: int = 0
    accepted: int = 0
    lag_p99_ms: float = 0.0
    cpu: tuple[float, ...] = ()
    start_offset_ms: float | None = None
    """How much later than the first share it began, as the writes of both at the resource tell."""
    offset_bound_ms: float | None = None
    """By how much that may be wrong."""
    missing: str = ""
    """Why nothing of it is in the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How far the run's own tools can be trusted."""

    trustworthy: bool = True
    reasons: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    """Those of the reasons that are no matter of punctuality: something of the run broke down."""
    lag_p50_ms: float = 0.0
    lag_p99_ms: float = 0.0
    lag_min_ms: float = 0.0
    lag_max_ms: float = 0.0
    lag_p999_ms: float = 0.0
    lag_histogram: Mapping[str, int] = field(default_factory=dict)
    loop_stalls: Pauses = Pauses()
    stalled_share: float = 0.0
    gc_pauses: Pauses = Pauses()
    gc_full_pauses: Pauses = Pauses()
    run_delay_share: float | None = None
    """Of the run, for how much a generator was ready and had no processor."""
    dropped: int = 0
    cpu: tuple[float, ...] = ()
    cpu_saturated: bool = False
    machines: tuple[MachineFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """How one threshold came out."""

    threshold: str
    passed: bool
    value: float | None
    sentence: str
    was: str = ""
    """The figure as a reader wants it: `4.82 ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure over several runs."""

    mean: float
    interval: tuple[float, float] | None = field(default=None, metadata=OPTIONAL)
    """95 % confidence interval of the mean, of three runs or more."""
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """What several runs of one configuration found, in the summary of the last of them."""

    folders: tuple[str, ...]
    """Of all of them, side by side."""
    figures: Mapping[str, Spread]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFigures:
    """Something that was broken on purpose, in seconds of the run."""

    name: str
    at_s: float
    until_s: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`server crashed (redis 127.0.0.1:6379)`."""
        return f"{self.name} ({self.details['who']})" if "who" in self.details else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """One step of a run whose rate changes. Arrivals count in the stage in which they were due."""

    rate: float
    from_s: float
    to_s: float
    offered: int
    acquired: int
    throughput_per_s: float
    arrival_to_grant_ms: Figures = Figures()
    """Of those who were granted the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole document."""

    schema: str
    command: tuple[str, ...] = ()
    started: str = ""
    config: RunConfig = field(default_factory=RunConfig)
    environment: Mapping[str, Any] = field(default_factory=dict)
    verdict: Verdict = "unknown"
    interrupted: bool = False
    doubts: tuple[str, ...] = ()
    certificate: Certificate = Certificate()
    checks: Mapping[str, CheckResult] = field(default_factory=dict)
    arrivals: Arrivals = Arrivals()
    throughput_per_s: float = 0.0
    """Grants while arrivals came; what was granted while the run drained is told apart."""
    duration_s: float = 0.0
    drain_s: float = 0.0
    drained: int = 0
    """Grants after the last arrival was due."""
    latency_ms: Latencies = Latencies()
    order: Order | None = None
    resource: ResourceFigures = ResourceFigures()
    backend: Backend = Backend()
    cycle_s: Cycle = field(default_factory=Cycle)
    client: Client = Client()
    bound: Bound = field(default_factory=lambda: Bound("nothing", "nothing arrived"))
    errors: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[FaultFigures, ...] = ()
    stages: tuple[StageFigures, ...] = ()
    thresholds: tuple[Judgement, ...] = ()
    repeats: Repeats | None = field(default=None, metadata=OPTIONAL)
    exit_code: int = 0
