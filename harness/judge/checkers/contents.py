"""What the resource stored is what was sent: the log's digests, and the values read back at the end."""

from collections.abc import Mapping

from harness.history import Decision
from harness.history.rows import body_of, digest
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.registry import checker
from harness.judge.checkers.result import CheckResult, Findings


@checker
def contents(evidence: Evidence) -> CheckResult:
    """Every logged digest is that of the bytes sent; every value read back is the last one accepted."""
    findings = evidence.findings()
    compared = _compare_sent(evidence, findings)
    read_back = _compare_final(evidence, findings)
    if not compared:
        findings.unseen("whether what was logged is what was sent: the history does not tell what was sent")
    if left := len(evidence.accepted) - read_back:
        findings.unseen("what {:,} of {:,} keys hold: they were not read back", left, len(evidence.accepted))
    return findings.result(writes_compared=compared, values_compared=read_back)


def _compare_sent(evidence: Evidence, findings: Findings) -> int:
    if not evidence.bodies_known:
        return 0
    compared = 0
    for row in evidence.rows:
        if row.write_sent is None:
            continue
        for decision in evidence.decided(row):
            if decision.digest is not None and decision.outcome == "accepted":
                compared += 1
                if decision.digest != digest(body_of(row)):
                    findings.violated("other bytes than {} sent were stored: {}", row, decision)
    return compared


def _compare_final(evidence: Evidence, findings: Findings) -> int:
    by_version: dict[str, Mapping[int | None, Decision]] = {
        key: {decision.version: decision for decision in decisions}
        for key, decisions in evidence.accepted.items()
        if key in evidence.history.values
    }
    for key, decisions in by_version.items():
        value, last = evidence.history.values[key], evidence.accepted[key][-1]
        stored = decisions.get(value.version)
        if stored is None and last.version is not None and value.version < last.version:
            findings.violated(
                "key {!r} was read back at version {}, but {} made it {}",
                *(key, value.version, last, last.version),
            )
        elif stored is None:
            findings.unknown("key {!r} was read back at version {}: the log lacks it", key, value.version)
        elif (written := _written(evidence, stored)) is not None and written != value.digest:
            findings.violated(
                "key {!r} does not hold what was written: {} is not what was read back", key, stored
            )
        elif stored is not last:
            findings.violated(
                "key {!r} was read back at version {}, but {} came after that", key, value.version, last
            )
    for key, value in evidence.history.values.items():
        if value.version and key not in by_version:
            findings.unknown("key {!r} was read back at version {}: the log lacks it", key, value.version)
    return len(by_version)


def _written(evidence: Evidence, decision: Decision) -> str | None:
    """The digest of what was accepted: as the log has it, or else of what its arrival sent."""
    if decision.digest is None and evidence.bodies_known:
        row = evidence.by_owner.get(decision.owner or "")
        return None if row is None else digest(body_of(row))
    return decision.digest
