"""What bounded a run's throughput, computed from what the run measured, and what to try next.

One key admits one holder at a time, so its throughput cannot exceed `1 / cycle`: see `cycle.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.config import RunConfig
from harness.durations import format_duration
from harness.judge.cycle import Cycle
from harness.judge.under_way import UnderWay
from harness.load.kinds import EXCLUSIVE

_KEPT_UP = 0.99
_DRAIN_SHARE = 0.05
_SATURATED = 0.85
_GAVE_UP = 0.05
"""The share of arrivals that time out beyond which that is what a reader must hear of."""
_CROWDED = 0.5
"""The share of the contenders that must be busy for the fleet to be what was too small."""
SERVERS = "servers"
_POLLING = ("redis", "redlock")
_FEW = 10


@dataclass(frozen=True, slots=True)
class Bound:
    """The answer, ready for `summary.json`."""

    name: str
    because: str
    next: list[str] = field(default_factory=list)


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
    under_way: UnderWay | None = None,
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
    if config.kind != EXCLUSIVE:
        return Bound(
            "holders",
            f"contenders waited for those who held the lock (--kind {config.kind})",
            ["do less while holding (--work)", f"--keys {config.keys * 10}"],
        )
    if cycle.count and cycle.utilisation > _SATURATED:
        return _serial(config, cycle)
    if busiest_key is not None and busiest_key[1].count and busiest_key[1].utilisation > _SATURATED:
        return _serial(config, busiest_key[1], busiest_key[0])
    if backlog_max and under_way is not None and under_way.contenders < _CROWDED * config.contenders:
        return _servers(config, under_way, acquired / seconds)
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


def advised(bound: Bound, config: RunConfig, *, violated: bool, timed_out: int, offered: int) -> Bound:
    """The bound, with what to try next in the light of how the run came out: the most urgent first."""
    first: list[str] = []
    if violated and not config.fence:
        first.append("--fence on (the same load, made safe by the resource)")
    if timed_out > _GAVE_UP * offered and bound.name != SERVERS:
        first += _pushed(config)
        if config.label in _POLLING and config.contenders > _FEW:
            first.append(f"--contenders {max(config.contenders // 10, _FEW)} (fewer that poll at once)")
    rest = bound.next
    if any(advice.startswith("--contenders") for advice in first):
        rest = [advice for advice in rest if not advice.startswith("--contenders")]
    return replace(bound, next=list(dict.fromkeys([*first, *rest])))


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


def _servers(config: RunConfig, section: UnderWay, served: float) -> Bound:
    """Arrivals waited, but not for a contender: no more sections are begun than can have a connection."""
    terms = {
        "acquire": section.acquire,
        "write": section.write,
        "release": section.release,
    }
    listed = " + ".join(f"{format_duration(taken)} {name}" for name, taken in terms.items())
    where = "resource" if section.write > section.acquire + section.release else "lock server"
    return Bound(
        SERVERS,
        f"lock server, resource and generator together: only {section.contenders:,.0f} of "
        f"{config.contenders:,} contenders were busy at once, and a section took {listed}, "
        f"most of it at the {where}",
        [f"--rate {served:.0f} (what was served)", f"--processes {config.processes + 1}"],
    )


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
