"""What a run is asked to do: its settings, their defaults, and the checks between them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from asyncdlock.backend import redact
from harness.durations import format_duration


class UsageError(Exception):
    """The command cannot do what it was asked to; the message is one sentence with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run of the harness. Durations are seconds."""

    backend: str = "redis"
    url: str | None = None
    """An existing lock server; `None` starts one."""
    options: tuple[str, ...] = ()
    """`NAME=VALUE` pairs for the URL's query."""
    resource_url: str | None = None
    contenders: int = 1000
    rate: float = 500.0
    duration: float = 15.0
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
    processes: int = 1
    seed: int = 1
    metrics_port: int | None = None
    live: int | None = None
    """Port of the page that shows the run while it lasts; 0 takes a free one, `None` shows none."""
    thresholds: tuple[str, ...] = ()
    junit: str | None = None
    """File for the verdict as JUnit, beside those of the run."""
    out: str = "runs"
    quiet: bool = False

    def __post_init__(self) -> None:
        """:raises UsageError: the values do not fit together."""
        if self.processes > self.contenders:
            raise UsageError(
                f"--processes {self.processes} needs at least as many contenders, not {self.contenders}"
            )
        if self.pause_every is not None and not self.pause:
            raise UsageError("--pause-every needs --pause: how long is a holder to be frozen?")
        if self.scheme == "memory" and self.processes > 1:
            raise UsageError(
                "the memory backend lives inside one process: use --processes 1 or another backend"
            )

    @property
    def scheme(self) -> str:
        """The URL scheme that a run will use."""
        return urlsplit(self.url).scheme if self.url else self.backend

    @property
    def label(self) -> str:
        """The backend's name for folders and headings."""
        return self.scheme if self.url else self.backend

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
