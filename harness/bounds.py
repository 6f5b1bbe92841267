"""What bounded a run's throughput, computed from what the run measured, and what to try next.

One key admits one holder at a time, so its throughput cannot exceed `1 / cycle`, where a cycle is
what passes from one grant to the next while somebody waits: the work, the write to the resource, and
the hand-off (release, and the next contender finding out). Each is measured here, from the rows.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from harness.config import RunConfig
from harness.durations import format_duration
from harness.history import Row
from harness.pacer import NANOSECONDS

_KEPT_UP = 0.99
_DRAIN_SHARE = 0.05
_SATURATED = 0.85


@dataclass(frozen=True, slots=True)
class Cycle:
    """The mean contended cycle of a key, in seconds."""

    count: int = 0
    work: float = 0.0
    """Grant → write sent."""
    write: float = 0.0
    """Write sent → its reply."""
    handoff: float = 0.0
    """Reply → the next grant of the key, which somebody was already waiting for."""
    frozen: float = 0.0
    """Total time for which a holder frozen on purpose kept a key from everybody else."""
    utilisation: float = 0.0
    """Share of the run for which a wanted key was in use, mean over the keys that were wanted."""

    @property
    def seconds(self) -> float:
        return self.work + self.write + self.handoff

    @property
    def ceiling(self) -> float:
        """Locked sections per second that one key can do; 0 when no cycle was contended."""
        return 1.0 / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Bound:
    """The answer, ready for `summary.json`."""

    name: str
    because: str
    next: list[str] = field(default_factory=list)


def measure_cycle(rows: Sequence[Row], seconds: float) -> Cycle:
    """The mean cycle over all keys. `seconds` is the length of the run."""
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.granted is not None:
            by_key[row.key].append(row)
    count = work = write = handoff = frozen = in_use = 0
    for holders in by_key.values():
        holders.sort(key=attrgetter("granted"))
        for holder, following in zip(holders, [*holders[1:], None], strict=True):
            granted, sent, done = holder.granted, holder.write_sent, holder.write_done
            end = holder.released or done or granted
            assert granted is not None
            assert end is not None
            contended = following is not None and following.called is not None and following.called < end
            if not contended or following is None or following.granted is None:
                in_use += end - granted
                continue
            in_use += following.granted - granted
            if holder.paused:
                frozen += following.granted - granted
            elif sent is not None and done is not None and done <= following.granted:
                count += 1
                work += sent - granted
                write += done - sent
                handoff += following.granted - done
    scale = max(count, 1) * NANOSECONDS
    return Cycle(
        count,
        work / scale,
        write / scale,
        handoff / scale,
        frozen / NANOSECONDS,
        in_use / NANOSECONDS / (max(seconds, 1e-9) * max(len(by_key), 1)),
    )


def find_bound(
    config: RunConfig,
    *,
    offered: int,
    acquired: int,
    failed: int,
    backlog_max: int,
    seconds: float,
    cpu: Sequence[float],
    cycle: Cycle,
) -> Bound:
    """Name what bounded the throughput. The first of the possible bounds that was reached is it."""
    busiest = max(cpu, default=0.0)
    if not offered:
        return Bound("nothing", "nothing arrived")
    if failed > offered / 2:
        return Bound("failures", f"{failed:,} of {offered:,} arrivals failed: see the errors in the history")
    # What was left after the last arrival must be no more than the last holders' own time.
    drained = seconds - config.duration <= config.pause + config.work + _DRAIN_SHARE * config.duration
    if acquired >= _KEPT_UP * offered and drained:
        return _kept_up(config, acquired, busiest, cycle)
    if cycle.frozen > seconds * min(config.keys, config.contenders) / 2:
        return Bound(
            "frozen holders",
            f"holders frozen on purpose kept their keys for {format_duration(cycle.frozen)} in all: "
            f"nobody gets in before the TTL of {format_duration(config.ttl)} has passed",
            ["a shorter --ttl (fencing keeps it safe)", "a larger --pause-every"],
        )
    if busiest > _SATURATED:
        return Bound(
            "client CPU",
            f"a load generator process used {busiest:.0%} of a core: the clients were the limit",
            [f"--processes {config.processes + 1}", *_pushed(config)],
        )
    if cycle.count and cycle.utilisation > _SATURATED:
        return _serial(config, cycle)
    if backlog_max:
        return Bound(
            "fleet",
            f"all {config.contenders:,} contenders were busy and {backlog_max:,} arrivals waited for one",
            [f"--contenders {config.contenders * 2}"],
        )
    return Bound(
        "waiting",
        f"the keys were in use {cycle.utilisation:.0%} of the time only, and still contenders waited: "
        "they found out too late that a lock was free",
        _pushed(config),
    )


def _kept_up(config: RunConfig, acquired: int, busiest: float, cycle: Cycle) -> Bound:
    because = f"{acquired:,} arrivals at {config.rate:g} per second were served"
    if cycle.count:
        because += (
            f"; a key was in use {cycle.utilisation:.0%} of the time, and where somebody waited one cycle "
            f"took {format_duration(cycle.seconds)} ({_terms(cycle)})"
        )
    else:
        because += " and none had to wait for another holder"
    if busiest > _SATURATED:
        because += f"; the load generator used {busiest:.0%} of a core, so the latencies are partly its own"
        return Bound("offered rate", because, [f"--processes {config.processes + 1}"])
    return Bound("offered rate", because, [f"--rate {config.rate * 2:g}"])


def _serial(config: RunConfig, cycle: Cycle) -> Bound:
    terms = {"work": cycle.work, "write": cycle.write, "hand-off": cycle.handoff}
    largest = max(terms, key=lambda name: terms[name])
    advice = {
        "work": ["do less while holding (--work)"],
        "write": ["a faster resource: the write is made while holding"],
        "hand-off": _pushed(config),
    }[largest]
    return Bound(
        "serialisation",
        f"one holder at a time: {_terms(cycle)}, so at most {cycle.ceiling:,.0f} per second and key; "
        f"the {largest} is the largest part, and more contenders would only wait longer",
        [*advice, f"--keys {config.keys * 10}"],
    )


def _pushed(config: RunConfig) -> list[str]:
    return ["--backend redis-queue (waiters are woken, nobody polls)"] if config.label == "redis" else []


def _terms(cycle: Cycle) -> str:
    return (
        f"{format_duration(cycle.work)} work + {format_duration(cycle.write)} write + "
        f"{format_duration(cycle.handoff)} hand-off"
    )
