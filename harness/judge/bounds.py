"""What bounded a run's throughput, computed from what the run measured, and what to try next.

One key admits one holder at a time, so its throughput cannot exceed `1 / cycle`, where a cycle is
what passes from one grant to the next while somebody waits: the work, the write to the resource, and
the hand-off (release, and the next contender finding out). Each is measured here, from the rows.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from harness.config import RunConfig
from harness.durations import format_duration
from harness.history import Row
from harness.judge.cycle import handoffs
from harness.load.pacer import NANOSECONDS

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
    per_hold: float = 0.0
    """For how long one hold kept its key from others, mean over all, contended or not."""

    @property
    def seconds(self) -> float:
        return self.work + self.write + self.handoff

    @property
    def ceiling(self) -> float:
        """Locked sections per second that one key can do; 0 when no cycle was contended.

        Over all holds, as the throughput is: those that nobody waited for are shorter, and a ceiling
        from the others alone would be exceeded.
        """
        return 1.0 / (self.per_hold or self.seconds) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Bound:
    """The answer, ready for `summary.json`."""

    name: str
    because: str
    next: list[str] = field(default_factory=list)


def measure_cycle(rows: Sequence[Row], seconds: float) -> Cycle:
    """The mean cycle over all keys. `seconds` is the length of the run."""
    uses = _uses(rows).values()
    return sum(uses, _Use()).cycle(seconds, len(uses))


def busiest_key(rows: Sequence[Row], seconds: float) -> tuple[str, Cycle] | None:
    """The key that was in use most, and its own cycle; `None` when nothing was granted."""
    uses = _uses(rows)
    if not uses:
        return None
    key = max(uses, key=lambda key: uses[key].in_use)
    return key, uses[key].cycle(seconds, 1)


@dataclass(slots=True)
class _Use:
    """How keys were used: counts, and sums in nanoseconds."""

    holds: int = 0
    """Of holders that were not frozen, and …"""
    held: int = 0
    """… for how long they kept their key from others."""
    in_use: int = 0
    count: int = 0
    work: int = 0
    write: int = 0
    handoff: int = 0
    frozen: int = 0

    def __add__(self, other: "_Use") -> "_Use":
        return _Use(
            *(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)),
        )

    def add(self, holder: Row, following: Row | None) -> None:
        """One hold, and the next of the key."""
        granted, sent, done = holder.granted or 0, holder.write_sent, holder.write_done
        end = holder.released or done or granted
        handed_over = None
        if following is not None and following.called is not None and following.called < end:
            handed_over = following.granted  # somebody waited for it
        used = (end if handed_over is None else handed_over) - granted
        self.in_use += used
        if holder.paused:
            self.frozen += used if handed_over is not None else 0
            return
        self.holds += 1
        self.held += used
        if handed_over is not None and sent is not None and done is not None and done <= handed_over:
            self.count += 1
            self.work += sent - granted
            self.write += done - sent
            self.handoff += handed_over - done

    def cycle(self, seconds: float, keys: int) -> Cycle:
        """The means, over a run of that length with that many wanted keys."""
        scale = max(self.count, 1) * NANOSECONDS
        return Cycle(
            self.count,
            self.work / scale,
            self.write / scale,
            self.handoff / scale,
            self.frozen / NANOSECONDS,
            self.in_use / NANOSECONDS / (max(seconds, 1e-9) * max(keys, 1)),
            self.held / (max(self.holds, 1) * NANOSECONDS),
        )


def _uses(rows: Sequence[Row]) -> dict[str, _Use]:
    uses: dict[str, _Use] = defaultdict(_Use)
    for turn in handoffs(rows):
        uses[turn.holder.key].add(turn.holder, turn.following)
    return uses


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
    busiest_key: tuple[str, Cycle] | None = None,
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
    if busiest_key is not None and busiest_key[1].count and busiest_key[1].utilisation > _SATURATED:
        return _serial(config, busiest_key[1], busiest_key[0])
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


def _serial(config: RunConfig, cycle: Cycle, key: str | None = None) -> Bound:
    """All keys were always in use, or `key` alone, which most wanted."""
    terms = {"work": cycle.work, "write": cycle.write, "hand-off": cycle.handoff}
    largest = max(terms, key=lambda name: terms[name])
    advice = {
        "work": ["do less while holding (--work)"],
        "write": ["a faster resource: the write is made while holding"],
        "hand-off": _pushed(config),
    }[largest]
    hot = "" if key is None else f"key {key!r} was in use {cycle.utilisation:.0%} of the time; "
    spread = f"--keys {config.keys * 10}" if key is None else "--key-distribution uniform"
    return Bound(
        "serialisation",
        f"{hot}one holder at a time: {_terms(cycle)}, so at most {cycle.ceiling:,.0f} per second and key; "
        f"the {largest} is the largest part, and more contenders would only wait longer",
        [*advice, spread],
    )


def _pushed(config: RunConfig) -> list[str]:
    return ["--backend redis-queue (waiters are woken, nobody polls)"] if config.label == "redis" else []


def _terms(cycle: Cycle) -> str:
    return (
        f"{format_duration(cycle.work)} work + {format_duration(cycle.write)} write + "
        f"{format_duration(cycle.handoff)} hand-off"
    )
