"""Two runs, or two sets of runs, figure by figure: lower, higher, or "cannot tell".

Of one run each, two percentiles differ when their confidence intervals do not overlap; a figure
without an interval cannot be told from chance. Of three runs each or more, taken in turns, the ratios of
the pairs decide, because only they know how much the machine itself varies between runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.judge.statistics import Answer, Interval, compare_intervals, ratio_interval
from harness.judge.thresholds import Threshold, figure
from harness.report.model import Latency, Summary

_PAIRS = 3
METRICS = (
    "throughput_per_s",
    *(
        f"{name}.{quantile}"
        for name in ("arrival_to_grant", "acquire")
        for quantile in ("p50", "p99", "p999")
    ),
    "hold.p50",
    "write.p50",
    "timed_out",
    "inversion_ratio",
    "commands_per_acquire",
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure on both sides; of several runs their mean."""

    metric: str
    before: str
    after: str
    ratio: float | None
    interval: Interval | None
    """Of the ratio, at 95 %."""
    answer: Answer


def compare_runs(before: Sequence[Summary], after: Sequence[Summary]) -> list[Comparison]:
    """Every figure that was measured on both sides. The n-th run of one side is paired with the other's."""
    found = []
    for metric in METRICS:
        ones = [value for summary in before if (value := figure(summary, metric)) is not None]
        others = [value for summary in after if (value := figure(summary, metric)) is not None]
        if len(ones) == len(before) and len(others) == len(after):
            found.append(_compare(metric, before, after, ones, others))
    return found


def _compare(
    metric: str, before: Sequence[Summary], after: Sequence[Summary], ones: list[float], others: list[float]
) -> Comparison:
    interval = ratio_interval(ones, others)
    if len(ones) >= _PAIRS:
        answer = compare_intervals((1.0, 1.0), interval)
    else:
        answer = _of_single_runs(metric, before, after)
    shown = Threshold(metric, "<", "", 0.0).shown
    one, other = fmean(ones), fmean(others)
    return Comparison(metric, shown(one), shown(other), other / one if one else None, interval, answer)


def _of_single_runs(metric: str, before: Sequence[Summary], after: Sequence[Summary]) -> Answer:
    """All pairs must say the same."""
    answers = {
        compare_intervals(_interval(one, metric), _interval(other, metric))
        for one, other in zip(before, after, strict=True)
    }
    return answers.pop() if len(answers) == 1 else "cannot tell"


def _interval(summary: Summary, metric: str) -> Interval | None:
    name, dot, quantile = metric.partition(".")
    if not dot:
        return None
    latency: Latency = getattr(summary.latency_ms, name)
    # What gave up would have waited longer: how much is not known.
    return None if quantile in latency.bounds else latency.intervals.get(quantile)
