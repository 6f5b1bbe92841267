"""Which arrivals broke a promise, so that a picture can mark them where it happened."""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from harness.durations import format_duration
from harness.history import Decision, History, Row
from harness.report.model import Summary


class Violation(NamedTuple):
    """What an arrival did, and when."""

    at: int
    phrase: str


def violations_of(history: History, summary: Summary) -> dict[int, Violation]:
    """By arrival. Nothing for a run in which the judges found nothing."""
    found: dict[int, Violation] = {}
    broken = {name for name, check in summary.checks.items() if check.verdict == "violated"}
    if "holders" in broken:
        found |= _second_holders(history)
    if broken & {"exclusion", "stale_writes"}:
        found |= _overwriting(history)
    return found


def _second_holders(history: History) -> Iterator[tuple[int, Violation]]:
    """Those who were let in while another still relied on the lock."""
    for rows in _by_key(row for row in history.rows if row.granted is not None):
        last: Row | None = None
        for row in sorted(rows, key=attrgetter("granted")):
            together = last is not None and last.shared and row.shared  # which they may be
            if last is not None and not together and (row.granted or 0) < _relied_until(last):
                early = format_duration((_relied_until(last) - (row.granted or 0)) / 1e9)
                phrase = f"let in while arrival {last.id} held it for another {early}"
                yield row.id, Violation(row.granted or 0, phrase)
            if last is None or _relied_until(row) > _relied_until(last):
                last = row


def _relied_until(row: Row) -> int:
    ends = [at for at in (row.releasing, row.released) if at is not None][:1] or [row.granted or 0]
    return min([*ends, *([] if row.valid_until is None else [row.valid_until])])


def _overwriting(history: History) -> Iterator[tuple[int, Violation]]:
    """Those whose write was accepted after that of a later holder."""
    arrivals = {row.owner: row.id for row in history.rows if row.owner is not None}
    highest: dict[str, Decision] = {}
    for decision in history.log or ():
        if not decision.accepted:
            continue
        before = highest.setdefault(decision.key, decision)
        if decision.owner in arrivals and (
            decision.token < before.token
            or (decision.token == before.token and decision.owner != before.owner)
        ):
            phrase = f"wrote with fence {decision.token} after fence {before.token} had written"
            yield arrivals[decision.owner], Violation(decision.decided, phrase)
        if decision.token > before.token:
            highest[decision.key] = decision


def _by_key(rows: Iterable[Row]) -> Iterable[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return groups.values()
