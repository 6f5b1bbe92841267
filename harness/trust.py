"""Can the figures of a run be believed? The reasons why not, in one place."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.durations import format_duration

LATE_MS = 10.0
"""Lateness below this is what an operating system does to any process on a busy machine."""
LATE_SHARE = 0.5
_PERCENTILES = (("p99", 500), ("p90", 50), ("p50", 0))
"""The highest percentile that five arrivals or more lie beyond: of sixty, the p99 is a single one."""


def doubts(
    latency_ms: Mapping[str, Mapping[str, Any]], *, dropped: int = 0, failures: Sequence[str] = ()
) -> list[str]:
    """Reasons not to trust a run; none for a good one.

    Latency counts from when an arrival was due, so a late generator cannot hide a queue; it makes
    up one. When its lateness accounts for half of what was measured at the same percentile, the
    figure tells more about the generator than about the lock.
    """
    found = list(failures)
    lag, grant = latency_ms["schedule_lag"], latency_ms["arrival_to_grant"]
    percentile = next(name for name, enough in _PERCENTILES if lag["count"] >= enough)
    late, measured = lag[percentile], grant[percentile]
    if late > LATE_MS and late > LATE_SHARE * measured:
        found.append(
            f"the load generator was {format_duration(late / 1e3)} late at the {percentile}, "
            f"against {format_duration(measured / 1e3)} from arrival to grant: it measured itself; "
            "lower --rate, raise --processes, or use a quieter machine"
        )
    if dropped:
        found.append(f"the backlog was full and {dropped:,} arrivals were dropped: set a --timeout")
    return found
