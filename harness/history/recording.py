"""What was measured, as plain data that can be sent, merged over processes and reported.

Seven latencies are kept, in nanoseconds:

    arrival_to_grant   intended → granted: what a user waits, the backlog included
    acquire            called → granted: the lock's own part
    hold               granted → released
    write              write_sent → write_done
    release            write_done → released
    connection         for how long holders that found no idle connection waited for one
    schedule_lag       when the pacer let the arrival go, less when it was due

Arrivals that were never granted are in none of them: read `timed_out` and `abandoned` beside them.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from harness.history.distribution import Distribution

LATENCIES = ("arrival_to_grant", "acquire", "hold", "write", "release", "connection", "schedule_lag")
INTERVAL_NS = 1_000_000_000

_ARRIVALS = ("offered", "dispatched", "acquired", "timed_out", "failed", "lost", "abandoned", "backlog_max")


@dataclass(slots=True)
class Counters:
    """What has happened so far. The runner counts the first four; `fold` counts the rest from rows."""

    offered: int = 0
    """Arrivals that were due."""
    dispatched: int = 0
    """Arrivals that a contender took."""
    backlog: int = 0
    """Arrivals that wait for a contender now."""
    backlog_max: int = 0

    acquired: int = 0
    timed_out: int = 0
    failed: int = 0
    lost: int = 0
    abandoned: int = 0
    accepted: int = 0
    """Writes that the resource acknowledged."""
    stale: int = 0
    """Writes that the resource refused for their fence."""
    unknown: int = 0
    """Writes without a reply."""
    paused: int = 0


def _distributions() -> dict[str, Distribution]:
    return {name: Distribution() for name in LATENCIES}


@dataclass(slots=True)
class Recording:
    """What one process measured: plain data that can be sent, merged and reported."""

    counters: Counters = field(default_factory=Counters)
    total: dict[str, Distribution] = field(default_factory=_distributions)
    packed: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Per second of the run and latency; packed, so that an hour takes some twenty megabytes."""

    def series(self, latency: str) -> Iterator[tuple[int, Distribution]]:
        """One latency over time: `(second of the run, distribution)`, quiet seconds left out.

        An arrival counts in the second in which it was over.
        """
        for index in sorted(self.packed):
            if latency in self.packed[index]:
                yield index, Distribution.unpack(self.packed[index][latency])

    def arrivals(self) -> dict[str, int]:
        """The `arrivals` of `summary.json`."""
        return {name: getattr(self.counters, name) for name in _ARRIVALS}

    @classmethod
    def merged(cls, parts: Iterable["Recording"]) -> "Recording":
        """Several processes' recordings as one. `backlog_max` becomes the sum: an upper bound."""
        whole = cls()
        shared: dict[int, dict[str, list[bytes]]] = {}
        for part in parts:
            for counter in fields(Counters):
                value = getattr(whole.counters, counter.name) + getattr(part.counters, counter.name)
                setattr(whole.counters, counter.name, value)
            for name, distribution in part.total.items():
                whole.total[name].merge(distribution)
            for index, latencies in part.packed.items():
                for name, packed in latencies.items():
                    shared.setdefault(index, {}).setdefault(name, []).append(packed)
        for index, groups in sorted(shared.items()):
            whole.packed[index] = {name: _merge_packed(group) for name, group in groups.items()}
        return whole

    def to_json(self) -> dict[str, Any]:
        """As JSON-safe data, for a parent process."""
        return {
            "counters": asdict(self.counters),
            "total": {name: distribution.to_text() for name, distribution in self.total.items()},
            "intervals": [
                [index, {name: b64encode(packed).decode() for name, packed in latencies.items()}]
                for index, latencies in self.packed.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The reverse of `to_json`."""
        return cls(
            Counters(**data["counters"]),
            {name: Distribution.from_text(text) for name, text in data["total"].items()},
            {
                index: {name: b64decode(text) for name, text in latencies.items()}
                for index, latencies in data["intervals"]
            },
        )


def _merge_packed(parts: list[bytes]) -> bytes:
    if len(parts) == 1:
        return parts[0]
    whole = Distribution()
    for part in parts:
        whole.merge(Distribution.unpack(part))
    return whole.pack()
