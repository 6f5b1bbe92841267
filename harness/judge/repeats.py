"""The same run several times: what its figures are on average, and how far that can be trusted."""

from collections.abc import Sequence
from statistics import fmean

from harness.judge.comparison import METRICS
from harness.judge.statistics import mean_interval
from harness.judge.thresholds import figure
from harness.report.model import Spread, Summary


def between_runs(summaries: Sequence[Summary]) -> dict[str, Spread]:
    """Every figure that was measured in all of them."""
    found = {}
    for metric in METRICS:
        values = [value for summary in summaries if (value := figure(summary, metric)) is not None]
        if len(values) == len(summaries):
            found[metric] = Spread(
                mean=round(fmean(values), 6),
                interval=mean_interval(values),
                least=round(min(values), 6),
                most=round(max(values), 6),
            )
    return found
