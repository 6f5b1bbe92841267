"""The resource's own promise: it never runs backwards on a fencing token."""

from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult


@checker
def stale_writes(evidence: Evidence) -> CheckResult:
    """Per key: every accepted write exceeds all before it, and the mark is never forgotten."""
    findings = evidence.findings()
    refused = 0
    highest: dict[str, tuple[int, int]] = {}
    marks: dict[str, int] = {}
    for decision in evidence.log:
        key = decision.key
        mark = marks.get(key, 0)
        if decision.seen is not None:
            if decision.seen < mark:
                findings.violated(
                    "the resource forgot its mark: at {} it knew of {} only, but it had seen {}",
                    *(decision, decision.seen, mark),
                )
            mark = max(mark, decision.seen)
        if decision.outcome != "accepted":
            refused += decision.outcome == "stale"
        elif decision.token:
            this = decision.token, decision.fence_seq
            if decision.token < mark or this <= highest.get(key, (0, 0)):
                findings.violated("stale write accepted: {}, when the resource had seen {}", decision, mark)
            else:
                highest[key] = this
            mark = max(mark, decision.token)
        marks[key] = mark
    return findings.result(decisions=len(evidence.log), refused=refused)
