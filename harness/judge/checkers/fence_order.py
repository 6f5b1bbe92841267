"""Fences rise from grant to grant.

The lock assigned the fence somewhere between the call and the grant. Two grants whose intervals overlap
may have been assigned in either order; where one grant was in hand before the other was called, its
fence must be the lower. That no two grants share a fence needs no clock. Times of different processes are
compared within the bounds of their clocks.
"""

from collections import defaultdict

from harness.history import Row
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings
from harness.judge.checkers.words import seconds

MAX_FENCE = 2**63 - 1


@checker
def fence_order(evidence: Evidence) -> CheckResult:
    """Per key: no fence twice, none out of range, and none below an earlier grant's."""
    findings = evidence.findings()
    judged = 0
    for key, grants in evidence.grants.items():
        for epoch in evidence.epochs(key, grants):
            judged += len(epoch)
            _check_fences(key, epoch, findings)
            _check_order(evidence, epoch, findings)
    granted = sum(map(len, evidence.grants.values()))
    if granted and not judged:
        findings.unknown("none of {:,} fences can be compared: accidents made the server forget", granted)
    without = sum(row.granted is not None and row.fence is None for row in evidence.rows)
    if without:
        findings.unknown("{:,} grants came without a fence", without)
    return findings.result(grants=judged)


def _check_order(evidence: Evidence, grants: list[Row], findings: Findings) -> None:
    called = [row for row in grants if row.called is not None]
    for earlier, later in evidence.clocks.regressions(called, _called, _granted):
        if earlier.fence != later.fence:  # a fence granted twice is named as that
            findings.violated(
                "the fence went back from {} to {}: {} was called at {}, after {} was granted at {}",
                *(earlier.fence, later.fence),
                *(later, seconds(later.called), earlier, seconds(earlier.granted)),
            )


def _called(row: Row) -> int:
    return row.called or 0


def _granted(row: Row) -> int:
    return row.granted or 0


def _check_fences(key: str, grants: list[Row], findings: Findings) -> None:
    fences = [row.fence or 0 for row in grants]
    for fence in fences:
        if not 1 <= fence <= MAX_FENCE:
            findings.violated("fence {} of key {!r} is outside 1 … 2^63-1", fence, key)
    if len(set(fences)) == len(fences):
        return
    holders: dict[int, list[int]] = defaultdict(list)
    for row, fence in zip(grants, fences, strict=True):
        holders[fence].append(row.id)
    for fence, ids in holders.items():
        if len(ids) > 1:
            listed = ", ".join(map(str, ids[:5]))
            findings.violated(
                "fence {} of key {!r} was granted {} times: to arrivals {}", fence, key, len(ids), listed
            )
