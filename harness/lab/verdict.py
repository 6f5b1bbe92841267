"""The one place that writes the history of an experiment and judges it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.faults import FaultJournal
from harness.history import HISTORY_FILE, RESOURCE_FILE, HistoryWriter, load_run
from harness.history.rows import Decision, Row
from harness.judge import checkers
from harness.judge.checkers import CheckResult, Verdict
from harness.lab.track import Track, rows_of

HOLDERS = "holders"
"""The checker that asks of the lock alone whether two held it at once: it does not count where that is what
an experiment brings about, to see what the resource makes of it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The checkers' word on a folder, and what they saw."""

    checks: Mapping[str, CheckResult]
    rows: Sequence[Row]
    decisions: Sequence[Decision]

    @property
    def verdict(self) -> Verdict:
        return self.verdict_but()

    def verdict_but(self, uncounted: Collection[str] = ()) -> Verdict:
        """Without the word of some checkers: where the fault is known to break what they check."""
        counted = {name: check for name, check in self.checks.items() if name not in uncounted}
        return checkers.verdict_of(counted)

    @property
    def findings(self) -> list[str]:
        return [finding for check in self.checks.values() for finding in check.findings]

    def figure(self, check: str, name: str) -> int:
        """A number that a checker counted; 0 when it could not judge."""
        return int(self.checks[check].figures.get(name, 0))


def judge(
    folder: Path,
    tracks: Sequence[Track],
    decisions: Sequence[Decision] | None,
    journal: FaultJournal,
    *,
    config: Mapping[str, Any] | None = None,
    after: int = 0,
) -> Judged:
    """Write the files and judge them as read back: `python -m harness check FOLDER` does the same.

    `decisions` is the resource's log, `None` where there was no resource; `after` is the number of the log's
    last row that was not theirs.

    :raises OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(tracks)
    with HistoryWriter(folder / HISTORY_FILE, Row, origin_ns=journal.origin, config=config) as history:
        for fault in journal.faults:
            history.fault(fault)
        history.write(rows)
    if decisions is not None:
        path = folder / RESOURCE_FILE
        # The resource may serve others as well: these are the decisions on their keys.
        selected = {"after": after, "selected": True}
        with HistoryWriter(path, Decision, origin_ns=journal.origin, config=selected) as log:
            log.write(decisions)
    return Judged(checkers.run_checks(load_run(folder)), rows, decisions or ())
