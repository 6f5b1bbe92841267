"""Holding a lock together with others: no reader with a writer, no more permits than there are.

What is certain of a hold is what `holders` says. Where a reader and a writer of one key follow each other,
the later one has the higher fence, so that a resource can tell a reader that outlived its lease. Of readers
among each other nothing is said but that their fences differ. Permits are counted: at no moment may more
than N holders rely on theirs.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from harness.history import Row
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.holders import Hold, Span, Sweep, certain_holds, granted_at, overlapping
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings
from harness.judge.checkers.words import seconds

_NEVER = 1 << 62


@checker
def readers_and_writers(evidence: Evidence) -> CheckResult:
    """Per key: no reader and writer at once within their validity, and fences rise from one to the other."""
    findings = evidence.findings()
    readers = overlaps = 0
    for key, grants in evidence.granted.items() if evidence.permits is None else ():
        reading = sum(row.shared for row in grants)
        readers += reading
        if not 0 < reading < len(grants):
            continue
        holds = certain_holds(evidence, key, grants)
        for before, after in overlapping(holds, evidence.clocks, _unlike):
            overlaps += 1
            findings.violated(
                "the lock broke its promise: {} held it from {} until {} at least, {} was granted it at {}",
                *(_named(before), seconds(before.start), seconds(before.end)),
                *(_named(after), seconds(after.start)),
            )
        for epoch in evidence.epochs(key, [hold.row for hold in holds if hold.row.fence is not None]):
            _check_fences(evidence, epoch, findings)
    return findings.result(readers=readers, overlaps=overlaps)


@checker
def permits(evidence: Evidence) -> CheckResult:
    """Per key: no more holders at once, within their validity, than there are permits."""
    findings = evidence.findings()
    limit = evidence.permits
    judged = 0
    for key, grants in evidence.granted.items() if limit is not None else ():
        assert limit is not None
        holds = certain_holds(evidence, key, grants)
        judged += len(holds)
        for _, after in overlapping(holds, evidence.clocks, _crowded(limit)):
            findings.violated(
                "the lock broke its promise: {} got one of {} permits of {!r} at {}, when all were held",
                *(after.row, limit, key, seconds(after.start)),
            )
    return findings.result(holds=judged)


def _unlike(spans: Sequence[Span]) -> Iterator[tuple[Hold, Hold]]:
    """Every hold that began during one of the other sort, and that one."""
    last: dict[bool, tuple[int, Hold]] = {}
    for start, end, hold in spans:
        other = last.get(not hold.row.shared)
        if other is not None and start < other[0]:
            yield other[1], hold
        mine = last.get(hold.row.shared)
        if mine is None or end > mine[0]:
            last[hold.row.shared] = end, hold


def _crowded(permits: int) -> Sweep:
    """Finds every hold that began when as many as there are permits were held, and one of those."""

    def sweep(spans: Sequence[Span]) -> Iterator[tuple[Hold, Hold]]:
        inside: list[tuple[int, int, Hold]] = []
        for start, end, hold in spans:
            while inside and inside[0][0] <= start:
                heappop(inside)
            if len(inside) >= permits:
                yield inside[0][2], hold
            heappush(inside, (end, hold.row.id, hold))

    return sweep


def _check_fences(evidence: Evidence, rows: Sequence[Row], findings: Findings) -> None:
    for first in (True, False):
        # Who is not of the first sort comes before nobody.
        end = _end_of(first)
        for earlier, later in evidence.clocks.regressions(rows, granted_at, end):
            if later.shared is not first and earlier.fence != later.fence:
                findings.violated(
                    "{} was granted the lock at {}, after {} at {}, under a lower fence",
                    *(later, seconds(later.granted), earlier, seconds(earlier.granted)),
                )


def _end_of(shared: bool) -> Callable[[Row], int]:
    def end(row: Row) -> int:
        return granted_at(row) if row.shared is shared else _NEVER

    return end


def _named(hold: Hold) -> str:
    return f"{'reader' if hold.row.shared else 'writer'} {hold.row.id}"
