"""What a count of events in so many trials allows to say about their probability, at 95 %."""

import math
from typing import NamedTuple

Z95 = 1.959964  # the normal distribution's 97.5 % quantile: 2.5 % on either side


class Interval(NamedTuple):
    """Bounds of a probability."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{_percent(self.low)} to {_percent(self.high)}"


def wilson(events: int, trials: int) -> Interval:
    """Wilson's score interval: sound also for few trials and for counts near none or all.

    Without a trial nothing is known: 0 to 1.
    """
    if not trials:
        return Interval(0.0, 1.0)
    share = events / trials
    centre = share + Z95**2 / (2 * trials)
    spread = Z95 * math.sqrt(share * (1 - share) / trials + Z95**2 / (4 * trials**2))
    scale = 1 + Z95**2 / trials
    # At either end the bound is exact; rounding must not push it beyond.
    low = 0.0 if not events else (centre - spread) / scale
    high = 1.0 if events == trials else (centre + spread) / scale
    return Interval(low, high)


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
