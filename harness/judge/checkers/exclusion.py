"""Mutual exclusion, judged where it counts: at the resource.

A holder is a fence. Whatever the lock did, the resource saw one holder after the other if the fences
of its accepted writes never went down and no fence belonged to two owners. A holder that was
displaced, comes back and is *accepted* after its successor is the violation.

The clients' own times are heard as well: a write that was sent after a later holder's had been
acknowledged came after it, whatever the log says.

Two holders at once on the lock's side are no violation here: the check `holders` judges them. How often
a write was sent when the next holder already had the lock is the figure `displaced_writers`. Nor are two
requests that were in the resource at the same time: it decides them one after the other.
"""

from itertools import pairwise

from harness.history import Decision, Row
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings
from harness.judge.checkers.words import seconds


@checker
def exclusion(evidence: Evidence) -> CheckResult:
    """No write is accepted after a later holder's; no two owners write under one fence."""
    findings = evidence.findings()
    if evidence.history.log is None:
        accepted = _check_replies(evidence, findings)
        findings.unknown("there is no log of the resource: the replies alone cannot rule out two writers")
        return findings.result(accepted=accepted, displaced_writers=_displaced(evidence))
    judged = unfenced = 0
    for decisions in evidence.accepted.values():
        latest: Decision | None = None
        for decision in decisions:
            if not decision.token:
                unfenced += 1
                continue
            judged += 1
            if latest is None or decision.token > latest.token:
                latest = decision
            elif decision.token < latest.token:
                findings.violated("two writers: {} was accepted after {}", decision, latest)
            elif decision.owner != latest.owner and None not in (decision.owner, latest.owner):
                findings.violated("two writers under one fence: {} and {} were accepted", latest, decision)
    if not findings.anything:
        _check_replies(evidence, findings)
    _check_titles(evidence, findings)
    if unfenced:
        _check_unfenced(evidence, findings)
    return findings.result(
        accepted=judged + unfenced, unfenced=unfenced, displaced_writers=_displaced(evidence)
    )


def _displaced(evidence: Evidence) -> int:
    """How many holders sent their write when the next one already had the lock."""
    displaced = 0
    for grants in evidence.grants.values():
        for row, successor in pairwise(sorted(grants, key=lambda row: row.granted or 0)):
            alone = not row.shared and not successor.shared
            displaced += alone and (row.write_sent or 0) > (successor.granted or 0)
    return displaced


def _check_titles(evidence: Evidence, findings: Findings) -> None:
    """Whoever writes must hold the lock of that key, and shows the fence that came with it."""
    for key, decisions in evidence.accepted.items():
        for decision in decisions:
            row = evidence.by_owner.get(decision.owner or "")
            if row is None:
                continue
            if row.granted is None:
                findings.violated("{} was never granted the lock, but wrote: {}", row, decision)
            elif row.key != key:
                findings.violated("{} wrote to another key than it held: {}", row, decision)
            elif decision.token and row.fence is not None and decision.token != row.fence:
                findings.violated("{} wrote under another fence than its own: {}", row, decision)


def _check_unfenced(evidence: Evidence, findings: Findings) -> None:
    """A holder with a fence whose write was accepted without one: nothing would have stopped a stale one."""
    fenced = {row.owner for rows in evidence.grants.values() for row in rows}
    strange = 0
    for decisions in evidence.accepted.values():
        for decision in decisions:
            if decision.token:
                continue
            if decision.owner is not None and decision.owner in fenced:
                findings.violated("accepted without the fence that its holder has: {}", decision)
            else:
                strange += 1
    if strange:
        findings.unknown(
            "{:,} accepted writes carried no fence, so no holder can be told from another", strange
        )


def _check_replies(evidence: Evidence, findings: Findings) -> int:
    """What the order of the clients' requests proves, whatever a log says; returns the writes looked at."""
    judged = 0
    for grants in evidence.grants.values():
        writes = [row for row in grants if row.write == "accepted" and row.write_done is not None]
        judged += len(writes)
        for earlier, later in evidence.clocks.regressions(writes, _sent, _done):
            findings.violated(
                "two writers: the write of {}, sent at {}, was accepted after that of {}, done at {}",
                *(later, seconds(later.write_sent), earlier, seconds(earlier.write_done)),
            )
    return judged


def _sent(row: Row) -> int:
    return row.write_sent or 0


def _done(row: Row) -> int:
    return row.write_done or 0
