"""Which TTL fits a host: how often a holder would outlive each, against how long a dead one blocks others.

A lease is renewed when a third of it has passed, so two thirds are left when a pause begins at the worst
moment: a pause of that length or more can outlive it. Pauses are counted, not modelled. None in the time
that was watched is a bound and never zero: at 95 % up to three might have been expected in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

TTLS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_LEFT = 2 / 3
_MARGIN = 3
"""The recommended TTL survives a pause this many times as long as the longest that was seen."""
_Z95 = 1.644854  # one-sided
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRisk:
    """What one TTL would mean here."""

    ttl: float
    survives: float
    """The longest pause that no holder outlives its lease in, in seconds."""
    outlived: int
    """Pauses that were seen and were as long."""
    per_hour: float
    """How many of them in an hour of holding, as seen."""
    per_hour_at_most: float
    """The 95 % upper bound of that."""
    probability: float
    """That one holding of the given length is outlived, as seen."""
    probability_at_most: float
    blocked: float
    """How long a holder that died keeps others out at most, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAdvice:
    """The risks of every TTL, and the one to take."""

    seconds: float
    longest: float
    hold: float
    risks: tuple[LeaseRisk, ...]
    recommended: float | None
    """`None`: the pauses are too long for every TTL that was looked at."""


def advise(stalls: Sequence[float], seconds: float, *, hold: float) -> LeaseAdvice:
    """From the pauses seen in `seconds`; `hold` is how long a lock is held at a time."""
    risks = tuple(_risk(ttl, stalls, seconds, hold) for ttl in TTLS)
    longest = max(stalls, default=0.0)
    fit = (risk.ttl for risk in risks if risk.survives >= _MARGIN * longest)
    return LeaseAdvice(seconds=seconds, longest=longest, hold=hold, risks=risks, recommended=next(fit, None))


def _risk(ttl: float, stalls: Sequence[float], seconds: float, hold: float) -> LeaseRisk:
    survives = ttl * _LEFT
    outlived = sum(stall >= survives for stall in stalls)
    rate, most = outlived / seconds, at_most(outlived) / seconds
    return LeaseRisk(
        ttl=ttl,
        survives=survives,
        outlived=outlived,
        per_hour=rate * _HOUR,
        per_hour_at_most=most * _HOUR,
        probability=-math.expm1(-rate * hold),
        probability_at_most=-math.expm1(-most * hold),
        blocked=ttl,
    )


def at_most(events: int) -> float:
    """The 95 % upper bound of a Poisson mean of which `events` were seen: 3.0 for none (Wilson-Hilferty)."""
    more = events + 1
    return more * (1 - 1 / (9 * more) + _Z95 / (3 * math.sqrt(more))) ** 3
