"""From the tallies of all processes to the figures that are published."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.verdict import judge
from bench.work import Tally
from harness.judge.checkers import Verdict, worst


@dataclass(frozen=True, slots=True)
class Figures:
    """One round of one subject."""

    sections_per_s: float
    wait_p50_ms: float
    wait_p99_ms: float
    wait_max_ms: float
    jain: float
    starved: int
    commands_per_section: float
    client_cpu_us: float
    server_cpu_us: float
    overtaken: float | None
    """The share of sections that began after one that was called for later; `None` where it is not known."""
    verdict: Verdict | None
    """Of the checkers, where a hot key and fences allow one."""


def figures(tallies: Sequence[Tally], *, hot: bool, server_cpu: float, server_commands: int) -> Figures:
    sections = [count for tally in tallies for count in tally.sections]
    total = sum(sections)
    waits = sorted(wait for tally in tallies for wait in tally.waits)
    counted = [tally.commands for tally in tallies if tally.commands is not None]
    with_ramp = max(1, sum(tally.total for tally in tallies))
    seconds = max(tally.seconds for tally in tallies)
    squares = sum(count * count for count in sections)
    return Figures(
        sections_per_s=total / seconds,
        wait_p50_ms=1000 * _quantile(waits, 0.5),
        wait_p99_ms=1000 * _quantile(waits, 0.99),
        wait_max_ms=1000 * (waits[-1] if waits else math.nan),
        jain=total * total / (len(sections) * squares) if squares else 0.0,
        starved=sections.count(0),
        commands_per_section=sum(counted) / max(1, total) if counted else server_commands / with_ramp,
        client_cpu_us=1e6 * sum(tally.cpu for tally in tallies) / max(1, total),
        server_cpu_us=1e6 * server_cpu / with_ramp,
        overtaken=_overtaken(tallies) if hot else None,
        verdict=judge(tallies) if hot else None,
    )


def medians(rounds: Sequence[Figures]) -> dict[str, Any]:
    """The median of each figure; of order and verdict the worst."""
    names = [name for name in Figures.__slots__ if name not in ("overtaken", "verdict")]
    result: dict[str, Any] = {name: median(getattr(one, name) for one in rounds) for name in names}
    result["overtaken"] = max((one.overtaken for one in rounds if one.overtaken is not None), default=None)
    verdicts = [one.verdict for one in rounds if one.verdict is not None]
    result["verdict"] = worst(verdicts) if verdicts else None
    return result


def remark(figures: Mapping[str, Any]) -> str:
    """What a table says beside the name of a subject whose history was not found in order."""
    return "" if figures["verdict"] in (None, "ok") else f" (checkers: {figures['verdict']})"


def _overtaken(tallies: Sequence[Tally]) -> float | None:
    sections = sorted(
        (granted, granted - wait)
        for tally in tallies
        for granted, wait in zip(tally.granted, tally.waits, strict=False)
    )
    if not sections:
        return None
    latest = -math.inf
    behind = 0
    for _, called in sections:
        behind += called < latest
        latest = max(latest, called)
    return behind / len(sections)


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else math.nan
