"""What a sample can show at 95 %: about a percentile, about two of them, and about a probability."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, linear_regression, stdev
from typing import Literal, NamedTuple

from harness.history.distribution import Distribution

Z95 = 1.959964  # the normal distribution's 97.5 % quantile: 2.5 % on either side

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


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean of independent values, by Student's t; `None` with fewer than three."""
    if len(values) < 3:
        return None
    mean = fmean(values)
    half = _student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


class Slope(NamedTuple):
    """How fast a figure changes, in its unit per unit of time, with the 95 % interval."""

    slope: float
    low: float
    high: float


_BLOCKS = 8


def slope_interval(
    times: Sequence[float], values: Sequence[float], of: Callable[[Sequence[float]], float] = fmean
) -> Slope | None:
    """The straight line through a series, in the order of time; `None` with fewer than two samples a block.

    Samples that follow each other are alike, and a line through all of them would claim to know too much. So
    it is drawn through the means of eight blocks, which hardly depend on each other, or through what else
    `of` makes of a block.
    """
    if len(times) < 2 * _BLOCKS:
        return None
    cuts = [number * len(times) // _BLOCKS for number in range(_BLOCKS + 1)]
    blocks = [slice(start, end) for start, end in pairwise(cuts)]
    xs, ys = [fmean(times[block]) for block in blocks], [of(values[block]) for block in blocks]
    line = linear_regression(xs, ys)
    residuals = [y - line.slope * x - line.intercept for x, y in zip(xs, ys, strict=True)]
    freedom = _BLOCKS - 2
    middle = fmean(xs)
    error = math.sqrt(sum(one * one for one in residuals) / freedom / sum((x - middle) ** 2 for x in xs))
    half = _student(freedom) * error
    return Slope(line.slope, line.slope - half, line.slope + half)


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean ratio second / first over paired runs, by Student's t on logarithms.

    `None` with fewer than three pairs, or where a figure is not positive.
    """
    pairs = list(zip(first, second, strict=True))
    if len(pairs) < 3 or any(one <= 0 or other <= 0 for one, other in pairs):
        return None
    found = mean_interval([math.log(other / one) for one, other in pairs])
    assert found is not None
    return math.exp(found[0]), math.exp(found[1])


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


class ShareInterval(NamedTuple):
    """Bounds of a probability."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{_percent(self.low)} to {_percent(self.high)}"


def wilson(events: int, trials: int) -> ShareInterval:
    """Wilson's score interval: sound also for few trials and for counts near none or all.

    Without a trial nothing is known: 0 to 1.
    """
    if not trials:
        return ShareInterval(0.0, 1.0)
    share = events / trials
    centre = share + Z95**2 / (2 * trials)
    spread = Z95 * math.sqrt(share * (1 - share) / trials + Z95**2 / (4 * trials**2))
    scale = 1 + Z95**2 / trials
    # At either end the bound is exact; rounding must not push it beyond.
    low = 0.0 if not events else (centre - spread) / scale
    high = 1.0 if events == trials else (centre + spread) / scale
    return ShareInterval(low, high)


def rule_of_three(trials: int) -> float:
    """The probability that none in `trials` trials leaves possible: 3/n, one-sided.

    With a larger one, n trials without an event would happen in less than one case of twenty:
    (1 - p)^n = 0.05 gives p = -ln(0.05)/n = 3.0/n.
    """
    return min(1.0, 3 / trials) if trials else 1.0


def share(events: int, trials: int) -> str:
    """As a reader wants it: `12 of 80 (15 %, 8.8 % to 24 %)`."""
    if not trials:
        return "none tried"
    return f"{events} of {trials} ({_percent(events / trials)}, 95 %: {wilson(events, trials)})"


def _percent(value: float) -> str:
    return f"{value * 100:.2g} %" if value < 0.995 else f"{value * 100:.0f} %"
