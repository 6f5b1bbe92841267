"""What became of each stage of a run whose rate changes."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from harness.config import RunConfig
from harness.history import Row
from harness.history.distribution import Distribution
from harness.report.latencies import figures_of
from harness.report.model import StageFigures

_NANOSECONDS = 1_000_000_000


def stages_of(config: RunConfig, rows: Sequence[Row]) -> tuple[StageFigures, ...]:
    """The `stages` of `summary.json`; none for a run with one rate."""
    if not config.stages:
        return ()
    lengths = [round(seconds * _NANOSECONDS) for _, seconds in config.steps]
    ends = list(accumulate(lengths, initial=round(config.warmup * _NANOSECONDS)))[1:]
    due: list[list[Row]] = [[] for _ in ends]
    granted = [0 for _ in ends]
    for row in rows:
        due[min(bisect_right(ends, row.intended), len(ends) - 1)].append(row)
        if row.granted is not None and row.granted < ends[-1]:
            granted[bisect_right(ends, row.granted)] += 1
    return tuple(
        StageFigures(
            rate=rate,
            from_s=round(end / _NANOSECONDS - seconds, 3),
            to_s=round(end / _NANOSECONDS, 3),
            offered=len(arrived),
            acquired=sum(row.granted is not None for row in arrived),
            throughput_per_s=round(count / seconds, 3),
            arrival_to_grant_ms=figures_of(
                Distribution(row.granted - row.intended for row in arrived if row.granted is not None)
            ),
        )
        for (rate, seconds), end, arrived, count in zip(config.steps, ends, due, granted, strict=True)
    )
