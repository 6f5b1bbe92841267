"""What a sample allows to say about the percentiles it was drawn from, and about two of them."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

from harness.history.distribution import Distribution
from harness.judge.intervals import Z95

Answer = Literal["lower", "higher", "cannot tell"]
"""What the second is beside the first."""

Interval = tuple[float, float]


def percentile_interval(values: Distribution, percent: float) -> tuple[int, int] | None:
    """The 95 % confidence interval of a percentile, from order statistics: no shape is assumed.

    How many of n values lie below the true percentile is binomial, so the interval reaches from one
    rank to another about it. `None` when the sample has too few values beyond the percentile.
    """
    count, share = values.count, percent / 100
    spread = Z95 * math.sqrt(count * share * (1 - share))
    low, high = math.floor(count * share - spread), math.ceil(count * share + spread) + 1
    if low < 1 or high > count:
        return None
    below, above = values.percentiles(100 * low / count, 100 * high / count)
    return below, above


def compare_intervals(first: Interval | None, second: Interval | None) -> Answer:
    """Of two figures with their intervals: where those overlap, the difference may be chance."""
    if first is None or second is None:
        return "cannot tell"
    if second[1] < first[0]:
        return "lower"
    return "higher" if second[0] > first[1] else "cannot tell"


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean ratio second / first over paired runs, by Student's t on logarithms.

    `None` with fewer than three pairs, or where a figure is not positive.
    """
    pairs = list(zip(first, second, strict=True))
    if len(pairs) < 3 or any(one <= 0 or other <= 0 for one, other in pairs):
        return None
    logs = [math.log(other / one) for one, other in pairs]
    mean = sum(logs) / len(logs)
    variance = sum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    half = _student(len(logs) - 1) * math.sqrt(variance / len(logs))
    return math.exp(mean - half), math.exp(mean + half)


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: exact up to five, by Cornish and Fisher's series beyond."""
    exact = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706}
    if freedom in exact:
        return exact[freedom]
    z = NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
