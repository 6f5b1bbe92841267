"""The generator's certificate: how far a run's own tools can be trusted, in the run's own figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.distribution import Distribution
from harness.durations import format_duration
from harness.pauses import Tally

_BOUNDS_MS = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)
_GC_SHARE = 0.1
_SATURATED = 0.95


def certificate(
    lag: Distribution,
    *,
    cpu: Sequence[float],
    seconds: float,
    dropped: int,
    pauses: Sequence[Mapping[str, Any]],
    doubts: Sequence[str],
) -> dict[str, Any]:
    """The `certificate` of `summary.json`.

    `pauses` are what each generator process counted; `doubts` what is already known against the run.
    """
    collections, stalls = Tally(), Tally()
    for part in pauses:
        collections.merge(Tally(**part["collections"]))
        stalls.merge(Tally(**part["stalls"]))
    reasons = list(doubts)
    busy = max(seconds, 1e-9) * max(len(pauses), 1)
    if collections.total > _GC_SHARE * busy:
        reasons.append(
            f"the garbage collector held the load generator up for {collections.total / busy:.0%} of the "
            f"run, {format_duration(collections.longest)} at once: lower --rate or raise --processes"
        )
    p50, p99 = lag.percentiles(50, 99)
    return {
        "trustworthy": not reasons,
        "reasons": reasons,
        "lag_p50_ms": round(p50 / 1e6, 6),
        "lag_p99_ms": round(p99 / 1e6, 6),
        "lag_min_ms": round(lag.min / 1e6, 6),
        "lag_max_ms": round(lag.max / 1e6, 6),
        "lag_histogram": lag_histogram(lag),
        "loop_stalls": _tally(stalls),
        "gc_pauses": _tally(collections),
        "dropped": dropped,
        "cpu": [round(share, 3) for share in cpu],
        "cpu_saturated": max(cpu, default=0.0) > _SATURATED,
    }


def lag_histogram(lag: Distribution) -> dict[str, int]:
    """How many arrivals were let go how late; those before their time are `early`."""
    counts = dict.fromkeys(["early", *(f"<{bound:g} ms" for bound in _BOUNDS_MS), "later"], 0)
    names = list(counts)
    if not lag.count:
        return counts
    for item in lag.to_hdr().get_recorded_iterator():
        place = sum(item.value_iterated_to >= bound * 1e6 for bound in _BOUNDS_MS)
        counts[names[place + 1]] += item.count_at_value_iterated_to
    # A histogram holds no negative values: those were counted as 0.
    counts["early"] = lag.negative
    counts[names[1]] -= lag.negative
    return counts


def _tally(tally: Tally) -> dict[str, float | int]:
    return {
        "count": tally.count,
        "total_ms": round(tally.total * 1e3, 3),
        "longest_ms": round(tally.longest * 1e3, 3),
    }
