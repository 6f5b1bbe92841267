"""Can the figures of a run be believed? The reasons why not, in one place.

Every bound is absolute. Latency counts from when an arrival was due, so a late generator makes up a
queue, and in overload that queue is what it would be compared with: a lateness that is small beside
what it caused itself would pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.durations import format_duration
from harness.history.distribution import Distribution

LATE_MS: Mapping[float, float] = {99.0: 25.0, 99.9: 100.0, 100.0: 500.0}
"""Percentile of lateness -> the most that is trusted. Less than that is what an operating system does to
any process on a busy machine."""
FEW_MS: Mapping[float, float] = {90.0: 25.0, 100.0: 1000.0}
"""The same for a run of a few hundred arrivals, whose p99 is a handful of them."""
MANY = 500
_BEYOND = 5
"""Arrivals that must lie beyond a percentile, or it is a single one's luck."""
STALLED_SHARE = 0.1
COLLECTED_SHARE = 0.1
RUN_DELAY_SHARE = 0.5
"""Less shows in the lateness, if it did any harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """What kept the generator's processes from their work, as shares of the run."""

    stalled: float = 0.0
    """An event loop that came late."""
    collected: float = 0.0
    """The garbage collector."""
    longest_collection: float = 0.0
    """In seconds."""
    run_delay: float | None = None
    """Ready to run, but no processor: the system's own count, where it keeps one."""


def doubts(
    lag: Distribution,
    *,
    hindrance: Hindrance | None = None,
    dropped: int = 0,
    failures: Sequence[str] = (),
) -> list[str]:
    """Reasons not to trust a run; none for a good one. `lag` is how late arrivals were let go."""
    found = [*failures, *_lateness(lag)]
    hindrance = hindrance or Hindrance()
    if hindrance.stalled > STALLED_SHARE:
        found.append(f"the load generator's event loop stood still for {hindrance.stalled:.0%} of the run")
    if hindrance.collected > COLLECTED_SHARE:
        found.append(
            f"the garbage collector held the load generator up for {hindrance.collected:.0%} of the "
            f"run, {format_duration(hindrance.longest_collection)} at once: lower --rate or raise --processes"
        )
    if hindrance.run_delay is not None and hindrance.run_delay > RUN_DELAY_SHARE:
        found.append(
            f"the load generator waited for a processor for {hindrance.run_delay:.0%} of the run: "
            "use a quieter machine"
        )
    if dropped:
        found.append(f"the backlog was full and {dropped:,} arrivals were dropped: set a --timeout")
    return found


def _lateness(lag: Distribution) -> list[str]:
    limits = LATE_MS if lag.count >= MANY else FEW_MS
    for percent, limit in limits.items():
        if percent < 100 and lag.count * (1 - percent / 100) < _BEYOND:
            continue
        late = lag.max if percent == 100 else lag.percentiles(percent)[0]
        if late > limit * 1e6:
            where = "at worst" if percent == 100 else f"at the p{percent:g}"
            return [
                f"the load generator was {format_duration(late / 1e9)} late {where}, where "
                f"{format_duration(limit / 1e3)} is the most to be trusted: it measured itself; "
                "lower --rate, raise --processes, or use a quieter machine"
            ]
    return []
