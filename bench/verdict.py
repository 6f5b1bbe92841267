"""Judges a round on a hot key from what its contenders recorded, by the harness's own checkers."""

from collections.abc import Sequence
from itertools import count

from bench.work import Tally
from harness.history import Decision, History, Row
from harness.judge.checkers import Verdict, run_checks, worst

_JUDGED = ("exclusion", "fence_order")


def judge(tallies: Sequence[Tally]) -> Verdict | None:
    """Whether one holder followed the other, with rising fences; `None` where the library has no fences."""
    history = history_of(tallies)
    if not history.rows:
        return None
    results = run_checks(history)
    return worst(results[name].verdict for name in _JUDGED)


def history_of(tallies: Sequence[Tally]) -> History:
    """Every section is an arrival, and its being counted a write, in the order of the clock they share."""
    numbers = count()
    rows = [
        Row(
            next(numbers),
            process,
            contender=-1,
            key="hot",
            intended=_ns(granted - wait),
            called=_ns(granted - wait),
            granted=_ns(granted),
            write_sent=_ns(granted),
            write_done=_ns(granted),
            fence=fence,
            outcome="ok",
            write="accepted",
        )
        for process, tally in enumerate(tallies)
        if tally.fences
        for wait, granted, fence in zip(tally.waits, tally.granted, tally.fences, strict=True)
    ]
    counted = sorted((row.granted or 0, row.fence or 0) for row in rows)
    log = [
        Decision("hot", seq, token, started=at, decided=at)
        for seq, (at, token) in enumerate(counted, start=1)
    ]
    return History(rows, log)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
