"""What a run is asked to do: its settings, their defaults, and the checks between them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from asyncdlock.backend import redact
from harness.durations import format_duration, parse_positive_duration

MAX_RATE = 1e6


class UsageError(Exception):
    """The command cannot do what it was asked to; the message is one sentence with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run of the harness. Durations are seconds."""

    backend: str = "redis-queue"
    """Waiters are woken one after the other. Those of `redis` poll: with a thousand of them on one key, as by
    default, a busy machine lets a part time out, which says more about polling than about the machine."""
    url: str | None = None
    """An existing lock server; `None` starts one."""
    client: str | None = None
    """`module:function` that makes the lock client in each process of the fleet; no server is started."""
    options: tuple[str, ...] = ()
    """`NAME=VALUE` pairs for the URL's query."""
    resource_url: str | None = None
    contenders: int = 1000
    rate: float = 500.0
    duration: float = 15.0
    warmup: float = 0.0
    """A time before `duration` in which arrivals come, are served and judged, but count in no figure."""
    stages: tuple[str, ...] = ()
    """`RATE/DURATION` of steps that follow each other; rate and duration are then those of the whole."""
    arrivals: str = "constant"
    keys: int = 1
    key_distribution: str = "uniform"
    kind: str = "exclusive"
    """What is taken: `exclusive`, `shared:SHARE` (of readers) or `semaphore:N`."""
    ttl: float = 10.0
    work: float = 0.0
    pause: float = 0.0
    pause_every: int | None = None
    timeout: float | None = 5.0
    """Patience of an arrival, from the time it was due until it is granted."""
    fence: bool = True
    faults: tuple[str, ...] = ()
    """What is to be broken, and when: see `harness.faults.plan`."""
    fault_seed: int | None = None
    """Draws faults, besides those that are named."""
    processes: int = 1
    share: tuple[int, int] = (0, 1)
    """Which of how many generators this is, that make one run together; counted from 0."""
    start_at: float | None = None
    """When the first arrival is due, in seconds since the epoch; `None`: as soon as everything is ready."""
    fleet: str | None = None
    """Where Dask finds or starts the workers that share the run."""
    seed: int = 1
    metrics_port: int | None = None
    live: int | None = None
    """Port of the page that shows the run while it lasts; 0 takes a free one, `None` shows none."""
    steer: bool = False
    """Rate and faults can be changed from that page."""
    thresholds: tuple[str, ...] = ()
    abort_on: tuple[str, ...] = ()
    """Ends the run as soon as one of them holds."""
    repeat: int = 1
    """How many runs one after the other, each with servers of its own."""
    stream: str | None = None
    """File for the state of the run, a line of JSON twice a second; `-` is standard output."""
    junit: str | None = None
    """File for the verdict as JUnit, beside those of the run."""
    out: str = "runs"
    quiet: bool = False

    def __post_init__(self) -> None:
        """:raises UsageError: the values do not fit together."""
        if self.all_processes > self.contenders:
            raise UsageError(
                f"{self.all_processes} processes need at least as many contenders, not {self.contenders}"
            )
        if self.is_share and not (self.url and self.resource_url):
            raise UsageError("--share needs --url and --resource-url: all shares use the same servers")
        if self.pause_every is not None and not self.pause:
            raise UsageError("--pause-every needs --pause: how long is a holder to be frozen?")
        if self.scheme == "memory" and self.processes > 1:
            raise UsageError(
                "the memory backend lives inside one process: use --processes 1 or another backend"
            )

    @property
    def span(self) -> float:
        """For how long arrivals come, those of the warm-up included."""
        return self.warmup + self.duration

    @property
    def is_share(self) -> bool:
        """Whether other generators make this run as well."""
        return self.share[1] > 1

    @property
    def all_processes(self) -> int:
        """Those of all shares."""
        return self.processes * self.share[1]

    @property
    def own_processes(self) -> range:
        """The numbers of this share's processes among all."""
        return range(self.processes * self.share[0], self.processes * (self.share[0] + 1))

    @property
    def steps(self) -> list[tuple[float, float]]:
        """Rate and duration of each stage, of which there is one when none are named."""
        return [parse_stage(stage) for stage in self.stages] or [(self.rate, self.duration)]

    @property
    def schedule(self) -> list[tuple[float, float]]:
        """The steps, and before them the warm-up at the rate of the first."""
        steps = self.steps
        return [(steps[0][0], self.warmup), *steps] if self.warmup else steps

    @property
    def scheme(self) -> str:
        """The URL scheme that a run will use."""
        # Split by hand: what is wrong with the rest is told, in one sentence, when it is connected to.
        return self.url.partition("://")[0].lower() if self.url else self.backend

    @property
    def label(self) -> str:
        """The backend's name for folders and headings."""
        return "client" if self.client else self.scheme

    @property
    def pause_period(self) -> int:
        """Every how many arrivals one is to be frozen while it holds; 0 for never.

        The default is one pause in four TTLs' worth of arrivals: a frozen holder blocks its key
        for one TTL, so that most of the time is left to those who queued up behind it.
        """
        if not self.pause:
            return 0
        return self.pause_every or max(2, math.ceil(4 * self.ttl * self.rate))

    @property
    def drain_limit(self) -> float:
        """How long after the last arrival everything must be over, or is ended.

        By then every patience has run out, every hold is over and every write has had its reply
        or its timeout; with unlimited patience ten seconds have to do.
        """
        return (10.0 if self.timeout is None else self.timeout) + self.pause + self.work + 10.0

    def to_json(self) -> dict[str, Any]:
        """JSON-safe, and fit for files that others read: URLs without their passwords."""
        return asdict(self) | {
            "url": self.url and redact(self.url),
            "resource_url": self.resource_url and redact(self.resource_url),
            "options": [redact(option) for option in self.options],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RunConfig":
        """The inverse of `to_json` but for passwords; unknown names are left out."""
        known = dict[str, Any]()
        for name in (field.name for field in fields(cls) if field.name in values):
            known[name] = tuple(values[name]) if isinstance(values[name], list) else values[name]
        return cls(**known)


def parse_stage(text: str) -> tuple[float, float]:
    """Rate and duration of `500/10s`; in a stage with the rate 0 nobody arrives.

    :raises ValueError: it is written otherwise.
    """
    rate, slash, duration = text.partition("/")
    try:
        number = float(rate)
    except ValueError:
        number = -1.0
    if not slash or not 0 <= number <= MAX_RATE:
        raise ValueError(f"{text!r} is not a stage: write arrivals per second and a duration, as in 500/10s")
    return number, parse_positive_duration(duration)


def in_stages(config: RunConfig) -> RunConfig:
    """With the mean rate and the whole duration of its stages, if it has any."""
    if not config.stages:
        return config
    duration = sum(seconds for _, seconds in config.steps)
    rate = sum(rate * seconds for rate, seconds in config.steps) / duration
    return replace(config, rate=rate, duration=duration)


def warnings(config: RunConfig) -> list[str]:
    """What a person probably did not mean; the run goes on."""
    found = []
    ttl = format_duration(config.ttl)
    if 0 < config.pause <= config.ttl:
        found.append(
            f"--pause {format_duration(config.pause)} is not longer than --ttl {ttl}: "
            "no lease will expire while its holder is frozen"
        )
    if config.timeout is not None and config.pause and config.timeout <= config.ttl:
        found.append(
            f"--timeout {format_duration(config.timeout)} is not longer than --ttl {ttl}: "
            "whoever queues behind a frozen holder gives up before its lease expires"
        )
    return found
