"""Tracks, faults and the resource's log as the files of a run, and what the checkers say of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import checkers
from harness.checkers import CheckResult, Verdict
from harness.experiments.lab.track import Track, rows_of
from harness.history import HISTORY_FILE, RESOURCE_FILE, HistoryWriter, load_run
from harness.rows import Decision, Fault, Row


@dataclass(frozen=True, slots=True)
class Judgement:
    """The checkers' word on a folder, and what they saw."""

    verdict: Verdict
    checks: Mapping[str, CheckResult]
    rows: Sequence[Row]

    @property
    def findings(self) -> list[str]:
        return [finding for check in self.checks.values() for finding in check.findings]

    def figure(self, check: str, name: str) -> int:
        """A number that a checker counted; 0 when it could not judge."""
        return int(self.checks[check].figures.get(name, 0))


def judge(
    folder: Path,
    tracks: Sequence[Track],
    decisions: Sequence[Decision],
    *,
    origin: int,
    faults: Sequence[Fault] = (),
    config: Mapping[str, Any] | None = None,
    after: int = 0,
) -> Judgement:
    """Write the files and judge them as read back: `python -m harness check FOLDER` does the same.

    `after` is the number of the log's last row that was not theirs.

    :raises OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(tracks)
    with HistoryWriter(folder / HISTORY_FILE, Row, origin_ns=origin, config=config) as history:
        for fault in faults:
            history.fault(fault)
        history.write(rows)
    path = folder / RESOURCE_FILE
    with HistoryWriter(path, Decision, origin_ns=origin, config={"after": after}) as log:
        log.write(decisions)
    checks = checkers.run_checks(load_run(folder))
    return Judgement(checkers.verdict_of(checks), checks, rows)
