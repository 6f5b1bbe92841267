"""From the tallies of all processes to the figures that are published."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from bench.work import Tally


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
    fence_order_kept: bool


def figures(tallies: Sequence[Tally], *, server_cpu: float, server_commands: int) -> Figures:
    sections = [count for tally in tallies for count in tally.sections]
    total = sum(sections)
    waits = sorted(wait for tally in tallies for wait in tally.waits)
    grants = sorted(grant for tally in tallies for grant in zip(tally.granted, tally.fences, strict=True))
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
        fence_order_kept=all(a[1] < b[1] for a, b in pairwise(grants)),
    )


def medians(rounds: Sequence[Figures]) -> dict[str, Any]:
    """The median of each figure; a broken fence order in any round stays visible."""
    names = [name for name in Figures.__slots__ if name != "fence_order_kept"]
    result: dict[str, Any] = {name: median(getattr(one, name) for one in rounds) for name in names}
    result["fence_order_kept"] = all(one.fence_order_kept for one in rounds)
    return result


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else math.nan
