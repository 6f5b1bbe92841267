"""What the clients were told agrees with what the resource did."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from harness.history import Decision, Row
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings
from harness.judge.checkers.words import seconds


@checker
def agreement(evidence: Evidence) -> CheckResult:
    """Refusals had a reason, failures had no effect, and every decision belongs to an arrival."""
    findings = evidence.findings()
    told = Counter([row.write for row in evidence.rows])
    did = Counter([decision.outcome for decision in evidence.log])
    happened = 0
    for row in evidence.rows:
        if row.write != "accepted" and row.granted is not None:
            decisions = evidence.decided(row)
            outcomes = {decision.outcome for decision in decisions}
            # A write that was sent and then cancelled has no reply either, whatever it is called.
            if row.write == "unknown" or (row.write == "none" and row.write_sent is not None):
                happened += "accepted" in outcomes
            elif row.write == "stale":
                _check_refusal(evidence, row, decisions, findings)
            elif "accepted" in outcomes:
                findings.violated("{} counts its write as {}, but the resource accepted it", row, row.write)
    _check_reasons(evidence, findings)
    for ahead in evidence.clocks.contradictory:
        findings.unknown(
            "the log contradicts the clients' times: {}, sent at {}, and {}, answered at {}, cannot both "
            "have been decided in between, however the clocks differ",
            *(ahead.lowest, seconds(ahead.lowest.write_sent)),
            *(ahead.highest, seconds(ahead.highest.write_done)),
        )
    strangers = _strangers(evidence)
    if strangers and evidence.history.complete:
        findings.unknown(
            "{:,} writes of the log belong to no arrival: someone else writes to this resource", strangers
        )
    return findings.result(
        told_accepted=told["accepted"],
        told_stale=told["stale"],
        told_nothing=told["unknown"],
        of_these_happened=happened,
        accepted=did["accepted"],
        stale=did["stale"],
        strangers=strangers,
    )


def _check_reasons(evidence: Evidence, findings: Findings) -> None:
    """A refusal needs a higher fence, or an earlier write under the same; a repetition needs a first time."""
    whole = evidence.from_the_start and not evidence.history.log_after
    marks: dict[str, int] = defaultdict(int)
    written: dict[str, dict[int, int]] = defaultdict(dict)
    for decision in evidence.log:
        key, token, seen = decision.key, decision.token, decision.seen
        before = written[key].get(token, -1)
        if decision.outcome == "accepted":
            written[key][token] = max(before, decision.fence_seq)
            marks[key] = max(marks[key], token)
        elif decision.outcome == "repeated":
            if whole and before < decision.fence_seq:
                findings.violated("repeats nothing that was accepted: {}", decision)
        elif decision.outcome == "stale" and seen is None:
            if token > marks[key]:
                findings.unknown("the log does not say why this was refused: {}", decision)
        elif decision.outcome == "stale" and seen is not None:
            nothing_before = whole and token == seen and before < decision.fence_seq
            if token > seen or nothing_before:
                findings.violated("refused for no reason: {}, when it had seen {}", decision, seen)


def _check_refusal(evidence: Evidence, row: Row, decisions: Sequence[Decision], findings: Findings) -> None:
    # A refusal beside an acceptance is a write that was sent again because its first reply was lost.
    refusals = [decision for decision in decisions if decision.outcome in ("stale", "repeated")]
    told = seconds(row.write_done)
    if refusals:
        marks = {decision.seen for decision in refusals}
        if row.seen is not None and not marks & {row.seen, None}:
            findings.violated(
                "{} was told at {} that the resource had seen {}, but {} was refused for {}",
                *(row, told, row.seen, refusals[-1], refusals[-1].seen),
            )
    elif decisions:
        findings.violated(
            "{} was told at {} that its write is stale, but the log has it as {}",
            *(row, told, decisions[0].outcome),
        )
    elif evidence.from_the_start:
        findings.unknown("{} was refused, but the log has no such refusal", row)


def _strangers(evidence: Evidence) -> int:
    """Decisions on writes that no arrival sent."""
    strange = {decision.owner for decision in evidence.log} - {row.owner for row in evidence.rows}
    count = sum(decision.owner in strange for decision in evidence.log) if strange else 0
    if None in strange:  # the log does not name its writers: their fences must do
        fences = {(row.key, row.fence) for row in evidence.rows}
        count -= sum(
            decision.owner is None and (decision.key, decision.token) in fences for decision in evidence.log
        )
    return count
