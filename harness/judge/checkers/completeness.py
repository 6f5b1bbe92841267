"""Whether there is enough to judge: whole files, somebody who got the lock, a write that was accepted.

A run that shows nothing breaks nothing. Its verdict is `unknown`, whatever the other checks say.
"""

from collections import defaultdict
from itertools import pairwise

from harness.history import History
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings


@checker
def completeness(evidence: Evidence) -> CheckResult:
    """The files are whole, and hold at least one grant and one accepted write."""
    history = evidence.history
    findings = evidence.findings()
    for damage in history.damage:
        findings.unknown("{}", damage)
    if not history.complete and not history.damage:
        findings.unknown("the files of the run are cut off")
    # It explains what else is missing.
    if strange := _refused_for_strangers(history):
        findings.unknown(
            "{:,} writes were refused for a fence that nobody in this run had shown: another run's marks are "
            "on the resource",
            strange,
        )
    granted = sum(row.granted is not None for row in history.rows)
    accepted = sum(row.write == "accepted" for row in history.rows)
    if not history.rows:
        findings.unknown("nothing arrived: an empty run shows nothing")
    elif not granted:
        findings.unknown("none of {:,} arrivals was granted the lock: nothing was tried", len(history.rows))
    elif not accepted:
        findings.unknown("no write was accepted: nothing could have been overwritten")
    _arrivals(evidence, findings)
    if history.log is None:
        findings.unknown("there is no log of the resource")
    else:
        _log(evidence, findings)
    return findings.result(arrivals=len(history.rows), granted=granted, accepted=accepted)


def _arrivals(evidence: Evidence, findings: Findings) -> None:
    """A run numbers its arrivals from 0, and its processes take turns."""
    processes = evidence.history.config.get("processes")
    if processes is None:  # written by a hand, or by a program that does not say
        return
    if type(processes) is not int or processes < 1:
        findings.unknown("the run says that it had {!r} processes", processes)
        return
    rows = evidence.history.rows
    recorded: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        recorded[row.id % processes].append(row.id)
        if row.process != row.id % processes:
            findings.unknown("{} says that it is of process {} of {}", row, row.process, processes)
    for process, ids in sorted(recorded.items()):
        missing = (max(ids) - process) // processes + 1 - len(set(ids))
        if missing > 0:
            findings.unknown("{:,} arrivals of process {} are not recorded", missing, process)
    for process in range(min(processes, len(rows))):
        if process not in recorded:
            findings.unknown("process {} recorded nothing", process)


def _log(evidence: Evidence, findings: Findings) -> None:
    history = evidence.history
    log = history.log or []
    if history.rows and not log:
        findings.unknown("the log of the resource is empty")
    if log and log[0].seq > history.log_after + 1 and not history.log_selected:
        findings.unknown(
            "the log of the resource begins with number {}, not {}", log[0].seq, history.log_after + 1
        )
    if log and log[0].seq <= history.log_after:
        findings.unknown(
            "the log of the resource begins with number {}, but says that it begins after {}",
            *(log[0].seq, history.log_after),
        )
    if not history.log_selected:
        for before, after in pairwise(log):
            if after.seq > before.seq + 1:
                findings.unknown(
                    "the log of the resource lacks the numbers {} to {}", before.seq + 1, after.seq - 1
                )


def _refused_for_strangers(history: History) -> int:
    """Refusals for a fence that the resource cannot have seen in this run.

    Whoever held it wrote, and the log shows that, or read, for which it must have been granted by then.
    """
    granted: dict[tuple[str, int | None], int] = {}
    for row in history.rows:
        if row.granted is not None:
            # Where a counter was lost, its fences are granted again: the first time counts.
            first = granted.get((row.key, row.fence), row.granted)
            granted[row.key, row.fence] = min(first, row.granted)
    shown: dict[str, int] = {}
    strange = 0
    for decision in history.log or ():
        seen = decision.seen or 0
        if decision.outcome == "stale" and seen > shown.get(decision.key, 0):
            since = granted.get((decision.key, seen))
            strange += since is None or since > decision.decided
        shown[decision.key] = max(shown.get(decision.key, 0), decision.token)
    return strange
