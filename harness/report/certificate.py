"""The generator's certificate: how far a run's own tools can be trusted, in the run's own figures."""

from collections.abc import Sequence

from harness.history.distribution import Distribution
from harness.judge.trust import Hindrance, doubts
from harness.load.pauses import PauseCounts, Tally
from harness.report.model import Certificate, Pauses

_BOUNDS_MS = (0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)
_SATURATED = 0.95


def certificate(
    lag: Distribution,
    *,
    cpu: Sequence[float],
    seconds: float,
    dropped: int,
    pauses: Sequence[PauseCounts],
    failures: Sequence[str],
) -> Certificate:
    """The `certificate` of `summary.json`.

    `pauses` are what each generator process counted; `failures` what went wrong with the run itself.
    """
    collections, full_collections, stalls = Tally(), Tally(), Tally()
    for part in pauses:
        collections.merge(part.collections)
        full_collections.merge(part.full_collections)
        stalls.merge(part.stalls)
    busy = max(seconds, 1e-9) * max(len(pauses), 1)
    waited = [part.run_delay for part in pauses if part.run_delay is not None]
    hindrance = Hindrance(
        stalled=stalls.total / busy,
        collected=collections.total / busy,
        longest_collection=collections.longest,
        run_delay=max(waited) / max(seconds, 1e-9) if waited else None,
    )
    reasons = doubts(lag, hindrance=hindrance, dropped=dropped, failures=failures)
    p50, p99, p999 = lag.percentiles(50, 99, 99.9)
    return Certificate(
        trustworthy=not reasons,
        reasons=tuple(reasons),
        failures=tuple(failures),
        lag_p50_ms=round(p50 / 1e6, 6),
        lag_p99_ms=round(p99 / 1e6, 6),
        lag_p999_ms=round(p999 / 1e6, 6),
        lag_min_ms=round(lag.min / 1e6, 6),
        lag_max_ms=round(lag.max / 1e6, 6),
        lag_histogram=lag_histogram(lag),
        loop_stalls=_pauses(stalls),
        stalled_share=round(hindrance.stalled, 6),
        gc_pauses=_pauses(collections),
        gc_full_pauses=_pauses(full_collections),
        run_delay_share=None if hindrance.run_delay is None else round(hindrance.run_delay, 6),
        dropped=dropped,
        cpu=tuple(round(share, 3) for share in cpu),
        cpu_saturated=max(cpu, default=0.0) > _SATURATED,
    )


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


def _pauses(tally: Tally) -> Pauses:
    return Pauses(
        count=tally.count,
        total_ms=round(tally.total * 1e3, 3),
        longest_ms=round(tally.longest * 1e3, 3),
    )
