"""Mutual exclusion, judged at the lock: no two holders at once while both may rely on it.

A hold is certain from its grant until its holder began to release it, and no longer than the lock had
promised: a holder that outlives its lease is displaced by right. Where a history does not say until
when that was, a release that still found its owner proves as much; else only the grant itself is
certain, and the TTL counted from the call is an assumption: a lease that several locks share may be
older than the call. Two certain holds of one key must not overlap, and since one then follows the
other, the later one must have the higher fence; where two overlap by assumption, nobody can tell. Times
of different processes are compared within the bounds of their clocks.

An accident that took the lock from whoever held it ends the hold as well, where the history says so.
Where most holds were promised nothing that lasted, two at once would not be noticed, and nothing is shown.
Holders that stay beyond a promise of some length are no such case: while it lasted, two would be noticed.

A lock that fails here may still do no harm, because the resource refuses whoever comes late.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from harness.history import Row
from harness.judge.checkers.clocks import Clocks, by_process
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings
from harness.judge.checkers.words import seconds


class Hold(NamedTuple):
    """From when until when a holder had the lock."""

    start: int
    end: int
    row: Row
    assumed: bool = False
    """Nothing but the TTL tells the end: of what is certain this is none but the start."""
    moment: bool = False
    """Nothing tells the end, nor whether it had not been lost before it was granted."""


Span = tuple[int, int, Hold]
"""A hold, and its beginning and end on a clock that all of a list share."""
Sweep = Callable[[Sequence[Span]], Iterable[tuple[Hold, Hold]]]


@checker
def holders(evidence: Evidence) -> CheckResult:
    """Per key: no two at once within their validity who want it alone, and fences rise from hold to hold."""
    findings = evidence.findings()
    overlaps = judged = granted = excused = outlived = timeless = 0
    apart: set[int] = set()
    for key, everybody in evidence.granted.items():
        grants = [row for row in everybody if not row.shared]
        holds, freed = _claimed(evidence, key, grants)
        excused += freed
        outlived += sum(_relied_on_nothing(hold, evidence.ttl) for hold in holds)
        granted += len(grants)
        judged += sum(not hold.moment for hold in holds)
        timeless += sum(hold.row.write_done == hold.start for hold in holds)
        proven = set()
        for before, after in overlapping(_certain(holds), evidence.clocks, _any_two):
            overlaps += 1
            proven.add(after.row.id)
            findings.violated(
                "the lock broke its promise: {} held it from {} until {} at least, {} was granted it at {}",
                *(before.row, seconds(before.start), seconds(before.end)),
                *(after.row, seconds(after.start)),
            )
        for before, after in overlapping(holds, evidence.clocks, _any_two):
            if after.moment:
                findings.unknown(
                    "{} was granted the lock at {}, when {} held it: nothing tells whether it was too late",
                    *(after.row, seconds(after.start), before.row),
                )
            elif before.assumed and after.row.id not in proven:
                findings.unknown(
                    "{} was granted the lock at {}, less than a TTL after {} had asked for it: "
                    "nothing tells whether that one's lease had ended",
                    *(after.row, seconds(after.start), before.row),
                )
        _check_across_processes(evidence, holds, proven, findings)
        # A single moment orders a hold as well as its whole length does.
        fenced = [hold.row for hold in _certain(holds) if hold.row.fence is not None]
        for epoch in evidence.epochs(key, fenced):
            _check_fences(evidence, epoch, findings)
        apart |= _not_comparable(holds, evidence.clocks)
    if judged < granted / 2:
        findings.unknown(
            "nothing tells until when {:,} of {:,} holds were valid: two at once would not be noticed",
            *(granted - judged, granted),
        )
    elif timeless > granted / 2:
        findings.unknown(
            "no time passed while {:,} of {:,} holders wrote, by their own clocks: two at once would not be "
            "noticed",
            *(timeless, granted),
        )
    elif granted > judged:
        findings.unseen("{:,} holds of which nothing tells until when they were valid", granted - judged)
    if outlived > granted / 2:
        findings.unknown(
            "{:,} of {:,} holders outlived what they had been promised before they wrote, and that was less "
            "than half a TTL: nothing tells whether they were alone",
            *(outlived, granted),
        )
    if apart:
        findings.unseen(
            "holds of process {} beside those of others: no write bounds the difference of their clocks",
            ", ".join(map(str, sorted(apart))),
        )
    return findings.result(holds=judged, overlaps=overlaps, **({"excused": excused} if excused else {}))


def _check_fences(evidence: Evidence, fenced: Sequence[Row], findings: Findings) -> None:
    for earlier, later in evidence.clocks.regressions(fenced, granted_at, granted_at):
        if earlier.fence != later.fence:
            findings.violated(
                "the lock broke its promise: {} held it at {}, after {} at {}, under a lower fence",
                *(later, seconds(later.granted), earlier, seconds(earlier.granted)),
            )


def _claimed(evidence: Evidence, key: str, rows: Iterable[Row]) -> tuple[list[Hold], int]:
    """The holds of these arrivals, and how many an accident cut short."""
    claimed = [hold for row in rows if (hold := _hold(row, evidence.ttl)) is not None]
    holds = _without_freed(claimed, evidence.spans("frees", key))
    kept = {hold.row.id: hold.end for hold in holds}
    return holds, sum(kept.get(hold.row.id) != hold.end for hold in claimed)


def _relied_on_nothing(hold: Hold, ttl: int | None) -> bool:
    """Whether a holder that nobody froze wrote after a promise that was over as soon as it was given."""
    sent = hold.row.write_sent
    if sent is None or sent <= hold.end or hold.row.paused or hold.moment:
        return False
    return ttl is None or hold.end - hold.start < ttl / 2


def _check_across_processes(
    evidence: Evidence, holds: Sequence[Hold], proven: set[int], findings: Findings
) -> None:
    """On one machine all processes read one clock, but a history cannot prove that it is so."""
    if not evidence.one_clock or len({hold.row.process for hold in holds}) < 2:
        return
    for before, after in _any_two(_in_order([(hold.start, hold.end, hold) for hold in _certain(holds)])):
        if before.row.process == after.row.process or after.row.id in proven:
            continue
        if not evidence.clocks.apart(before.row, before.end, after.row, after.start):
            findings.unknown(
                "by their own clocks, {} held it until {}, but {} was granted it at {}: "
                "nothing tells that these clocks agree",
                *(before.row, seconds(before.end), after.row, seconds(after.start)),
            )


def _without_freed(holds: list[Hold], freed: Sequence[tuple[int, int]]) -> list[Hold]:
    """Holds end where an accident took the lock away; what was granted while it lasted may be void."""
    for at, until in freed:
        kept = [hold for hold in holds if hold.start < at or (hold.row.called or 0) > until]
        holds = [hold._replace(end=min(hold.end, at)) if hold.start < at else hold for hold in kept]
    return holds


def granted_at(row: Row) -> int:
    """When `acquire` returned."""
    return row.granted or 0


def certain_holds(evidence: Evidence, key: str, rows: Iterable[Row]) -> list[Hold]:
    """What is certain of the holds of these arrivals, all of one key."""
    return _certain(_claimed(evidence, key, rows)[0])


def _certain(holds: Iterable[Hold]) -> list[Hold]:
    known = [hold for hold in holds if not hold.moment]
    return [hold._replace(end=hold.start) if hold.assumed else hold for hold in known]


def _hold(row: Row, ttl: int | None) -> Hold | None:
    """`None` when the lock was no longer this holder's when it was granted it."""
    assert row.granted is not None
    last = next(
        time for time in (row.releasing, row.write_done, row.write_sent, row.granted) if time is not None
    )
    if row.outcome == "lost":
        # Told that the lease is gone, at a time that nobody noted: what is certain is the check
        # before its write, which a frozen holder does not make.
        if row.paused and row.write_sent is not None and row.valid_until is not None:
            return Hold(row.granted, max(min(last, row.valid_until), row.granted), row, assumed=True)
        last = row.granted if row.paused or row.write_sent is None else row.write_sent
    if row.valid_until is not None:
        last = min(last, row.valid_until)
    elif row.outcome != "ok" or row.paused:
        if ttl is None or row.called is None:
            return Hold(row.granted, row.granted, row, moment=True)
        last = min(last, row.called + ttl)
        return Hold(row.granted, last, row, assumed=True) if last >= row.granted else None
    return Hold(row.granted, last, row) if last >= row.granted else None


def overlapping(holds: Sequence[Hold], clocks: Clocks, sweep: Sweep) -> Iterator[tuple[Hold, Hold]]:
    """What `sweep` finds among holds in the order of their beginnings, by clocks that can be compared."""
    named: set[int] = set()
    groups = by_process([hold.row for hold in holds])
    if len({hold.row.process for hold in holds}) == 1:
        yield from sweep(_in_order([(hold.start, hold.end, hold) for hold in holds]))
        return
    of_row = {hold.row.id: hold for hold in holds}
    for group in groups:
        mine = [of_row[row.id] for row in group]
        for before, after in sweep(_in_order([(hold.start, hold.end, hold) for hold in mine])):
            named.add(after.row.id)
            yield before, after
    shared = [hold for hold in holds if clocks.bounds(hold.row) is not None]
    certain = [
        (clocks.latest(hold.row, hold.start), clocks.earliest(hold.row, hold.end), hold) for hold in shared
    ]
    for before, after in sweep(_in_order([hold for hold in certain if hold[0] <= hold[1]])):
        if after.row.id not in named:
            yield before, after


def _in_order(spans: Iterable[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: span[:2])


def _any_two(spans: Sequence[Span]) -> Iterator[tuple[Hold, Hold]]:
    """Every hold that began during an earlier one, and that one."""
    last: tuple[int, Hold] | None = None
    for start, end, hold in spans:
        if last is not None and start < last[0]:
            yield last[1], hold
        if last is None or end > last[0]:
            last = end, hold


def _not_comparable(holds: Sequence[Hold], clocks: Clocks) -> set[int]:
    processes = {hold.row.process: hold.row for hold in holds}
    if len(processes) < 2:
        return set()
    return {process for process, row in processes.items() if clocks.bounds(row) is None}
