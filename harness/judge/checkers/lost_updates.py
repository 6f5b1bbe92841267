"""An acknowledged write is in the resource's log, accepted, exactly once: also after a crash.

A write without a reply (`unknown`) may be there or not: its end is open.
"""

from collections.abc import Sequence
from itertools import pairwise

from harness.history import Decision, Row
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings
from harness.judge.checkers.words import seconds


@checker
def lost_updates(evidence: Evidence) -> CheckResult:
    """No acknowledged write is missing, none took effect twice, no key fell back to an older version."""
    findings = evidence.findings()
    acknowledged = 0
    for row in evidence.rows:
        if row.write == "accepted":
            acknowledged += 1
            outcomes = [decision.outcome for decision in evidence.decided(row)]
            if "accepted" not in outcomes:
                _missing(evidence, row, outcomes, findings)
    for decisions in evidence.accepted.values():
        _check_once(evidence, decisions, findings)
        _check_versions(decisions, findings)
    return findings.result(acknowledged=acknowledged, accepted=sum(map(len, evidence.accepted.values())))


def _missing(evidence: Evidence, row: Row, outcomes: Sequence[str], findings: Findings) -> None:
    told = seconds(row.write_done)
    if outcomes:
        said = ", ".join(outcomes)
        findings.violated("lost update: {} was told at {} that it wrote, the log says {}", row, told, said)
    elif not evidence.history.complete:
        findings.unknown("{} was told at {} that it wrote; the run's files are cut off", row, told)
    elif not evidence.from_the_start and (row.write_done or 0) < evidence.log[0].decided:
        findings.unknown("{} was told at {} that it wrote; the log begins only after that", row, told)
    else:
        findings.violated("lost update: {} was told at {} that it wrote, but it is not in the log", row, told)


def _check_once(evidence: Evidence, decisions: Sequence[Decision], findings: Findings) -> None:
    if len({decision.token for decision in decisions}) == len(decisions):
        return
    applied: set[tuple[int, int, str | None]] = set()
    for decision in decisions:
        once = evidence.bodies_known and decision.owner is not None
        identity = decision.token, 0 if once else decision.fence_seq, decision.owner
        if identity in applied and decision.token:
            findings.violated("applied twice: {}", decision)
        applied.add(identity)


def _check_versions(decisions: Sequence[Decision], findings: Findings) -> None:
    """A version counts the accepted writes of a key: it must rise by one with each."""
    for before, after in pairwise(decisions):
        if before.version is None or after.version is None:
            continue
        if after.version <= before.version:
            findings.violated(
                "lost update: the key was at version {} with {}, but at {} with {}",
                *(before.version, before, after.version, after),
            )
        elif after.version > before.version + 1:
            missing = after.version - before.version - 1
            findings.unknown("the log lacks {} accepted writes between {} and {}", missing, before, after)
