"""Mutual exclusion, judged where it counts: at the resource.

A holder is a fence. Whatever the lock did, the resource saw one holder after the other if the fences
of its accepted writes never went down and no fence belonged to two owners. A holder that was
displaced, comes back and is *accepted* after its successor is the violation.

Two holders at once on the lock's side are no violation in themselves: a lease can always run out under
a holder that sleeps. How often that happened is the figure `displaced_writers`. Nor are two requests
that were in the resource at the same time: it decides them one after the other.
"""

from itertools import pairwise

from harness.checkers.evidence import Evidence
from harness.checkers.realtime import regressions
from harness.checkers.registry import checker
from harness.checkers.result import CheckResult
from harness.checkers.words import seconds
from harness.history import Decision


@checker
def exclusion(evidence: Evidence) -> CheckResult:
    """No write is accepted after a later holder's; no two owners write under one fence."""
    if evidence.history.log is None:
        return _from_replies(evidence)
    findings = evidence.findings()
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
    if unfenced and not judged:
        findings.unknown("no accepted write carried a fence, so no holder can be told from another")
    return findings.result(
        accepted=judged + unfenced, unfenced=unfenced, displaced_writers=_displaced(evidence)
    )


def _displaced(evidence: Evidence) -> int:
    """How many holders sent their write when the next one already had the lock."""
    displaced = 0
    for grants in evidence.grants.values():
        for row, successor in pairwise(sorted(grants, key=lambda row: row.granted or 0)):
            displaced += (row.write_sent or 0) > (successor.granted or 0)
    return displaced


def _from_replies(evidence: Evidence) -> CheckResult:
    """Without the resource's log: only what the order of the clients' requests proves."""
    findings = evidence.findings()
    judged = 0
    for grants in evidence.grants.values():
        writes = [row for row in grants if row.write == "accepted" and row.write_done is not None]
        judged += len(writes)
        for before, after in regressions(
            [row.write_sent or 0 for row in writes],
            [row.write_done or 0 for row in writes],
            [row.fence or 0 for row in writes],
        ):
            earlier, later = writes[before], writes[after]
            findings.violated(
                "two writers: the write of {}, sent at {}, was accepted after that of {}, done at {}",
                *(later, seconds(later.write_sent), earlier, seconds(earlier.write_done)),
            )
    findings.unknown("there is no log of the resource: the replies alone cannot rule out two writers")
    return findings.result(accepted=judged, displaced_writers=_displaced(evidence))
