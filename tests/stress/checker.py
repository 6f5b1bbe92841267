"""Judges the events of a stress run: overlap, order of fences, idle gaps, stuck waits."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from tests.stress.events import Event

_MOST_FINDINGS = 20


@dataclass(slots=True)
class _Attempt:
    key: str
    waited_from: float
    waited_until: float | None = None
    """`None`: its process died while it waited."""
    starts: float | None = None
    """From here on the client believed, rightly or not, that it held the lock."""
    ends: float = 0.0
    fence: int = 0


@dataclass(slots=True)
class Verdict:
    """What was seen, and every promise that was broken, in words."""

    gap_bound: float
    grants: int = 0
    broken: list[str] = field(default_factory=list)
    longest_gap: float = 0.0
    """The longest time for which a lock was free while somebody waited for it."""


def check(
    events: Iterable[Event], *, gap_bound: float, standstills: Sequence[tuple[float, float]] = ()
) -> Verdict:
    """Judge all events of a run.

    `gap_bound`: how long a contended lock may stay free, in seconds. `standstills`: from when until when the
    whole machine stood still, which is no gap of the lock's.
    """
    verdict = Verdict(gap_bound)
    by_key: dict[str, list[_Attempt]] = defaultdict(list)
    for attempt in _attempts(events, verdict).values():
        by_key[attempt.key].append(attempt)
    for key, attempts in by_key.items():
        holds = sorted((one for one in attempts if one.starts is not None), key=_start)
        verdict.grants += len(holds)
        _check_holds(key, holds, verdict)
        _check_gaps(key, holds, attempts, verdict, standstills)
    del verdict.broken[_MOST_FINDINGS:]
    return verdict


def _start(attempt: _Attempt) -> float:
    assert attempt.starts is not None
    return attempt.starts


def _attempts(events: Iterable[Event], verdict: Verdict) -> dict[str, _Attempt]:
    found: dict[str, _Attempt] = {}
    for event in sorted(events, key=attrgetter("at")):
        if event.kind == "wait":
            found[event.attempt] = _Attempt(event.key, event.at)
            continue
        attempt = found[event.attempt]
        if event.kind == "stuck":
            verdict.broken.append(f"{event.key}: {event.attempt} is stuck: {event.why}")
        elif event.kind == "over":
            if attempt.waited_until is None:
                attempt.waited_until = event.at
        else:
            _note_holding(attempt, event)
    return found


def _note_holding(attempt: _Attempt, event: Event) -> None:
    if event.kind == "got":
        attempt.waited_until = event.at
        attempt.fence = event.fence
        if event.held:
            attempt.starts = attempt.ends = event.at
    elif attempt.starts is not None and event.held:
        # A lease that lives at this time has lived since it was granted.
        attempt.ends = event.at


def _check_holds(key: str, holds: list[_Attempt], verdict: Verdict) -> None:
    fences = [one.fence for one in holds]
    if len(set(fences)) != len(fences):
        verdict.broken.append(f"{key}: a fence was granted twice")
    latest = None
    for one in holds:
        if latest is not None and _start(one) < latest.ends:
            verdict.broken.append(
                f"{key}: fence {one.fence} was held from {one.starts:.6f} while fence {latest.fence} "
                f"was held until {latest.ends:.6f}"
            )
        if latest is None or one.ends > latest.ends:
            latest = one
    for earlier, later in pairwise(holds):
        if later.fence < earlier.fence:
            verdict.broken.append(f"{key}: fence {later.fence} was granted after fence {earlier.fence}")


def _check_gaps(
    key: str,
    holds: list[_Attempt],
    attempts: list[_Attempt],
    verdict: Verdict,
    standstills: Sequence[tuple[float, float]],
) -> None:
    bound = verdict.gap_bound
    waits = sorted((one.waited_from, one.waited_until) for one in attempts if one.waited_until is not None)
    ends = min(one.waited_from for one in attempts)
    # Free to the end of the run: somebody may have waited until it gave up.
    until = max((until for _, until in waits), default=ends)
    for one in [*holds, None]:
        starts = until if one is None else _start(one)
        if starts - ends > verdict.longest_gap:
            idle = _covered(ends, starts, waits) - _covered(ends, starts, standstills)
            verdict.longest_gap = max(verdict.longest_gap, idle)
            if idle > bound:
                before = "the end" if one is None else f"fence {one.fence}"
                verdict.broken.append(
                    f"{key}: free for {idle:.1f} s before {before} though somebody waited; "
                    f"the bound is {bound:.1f} s"
                )
        if one is not None:
            ends = max(ends, one.ends)


def _covered(start: float, end: float, waits: Sequence[tuple[float, float]]) -> float:
    """For how long of this time at least one of these, which are sorted, was under way."""
    total, covered = 0.0, start
    for since, until in waits:
        if since >= end:
            break
        if until > covered:
            total += min(until, end) - max(since, covered)
            covered = min(until, end)
    return total
