"""How far the clocks of the processes may lie apart, found from the writes that passed between them.

A write cannot reach the resource before it was sent, nor be answered before it was decided. Each one
bounds by how much its sender's clock is ahead of the resource's:

    sent - started  <=  ahead  <=  answered - decided

Over a whole run the bounds close to about one network delay. Times of two processes are compared only
as far as these bounds allow; times of one process need none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.history import Decision, Row
from harness.judge.checkers.realtime import regressions

_ANSWERS: Mapping[str, tuple[str, ...]] = {"accepted": ("accepted",), "stale": ("stale", "repeated")}


@dataclass(slots=True)
class Ahead:
    """Bounds of a process's clock less the resource's, in nanoseconds, and the writes that set them."""

    low: int
    high: int
    lowest: Row
    highest: Row

    @property
    def possible(self) -> bool:
        return self.low <= self.high


class Clocks:
    """The bounds of every process; of one without an answered write nothing is known."""

    def __init__(self, ahead: Mapping[int, Ahead]) -> None:
        self.contradictory = [bounds for bounds in ahead.values() if not bounds.possible]
        self._ahead = {process: bounds for process, bounds in ahead.items() if bounds.possible}

    def bounds(self, row: Row) -> Ahead | None:
        """`None`: this process's times cannot be compared with another's."""
        return self._ahead.get(row.process)

    def earliest(self, row: Row, at: int) -> int:
        """The earliest that `at` can have been, on the resource's clock."""
        return at - self._ahead[row.process].high

    def latest(self, row: Row, at: int) -> int:
        return at - self._ahead[row.process].low

    def apart(self, before: Row, end: int, after: Row, start: int) -> bool:
        """Whether it is certain that `start` was no earlier than `end`, each on its own row's clock."""
        if self.bounds(before) is None or self.bounds(after) is None:
            return False
        return self.latest(before, end) <= self.earliest(after, start)

    def regressions(
        self,
        rows: Sequence[Row],
        start: Callable[[Row], int],
        end: Callable[[Row], int],
    ) -> Iterator[tuple[Row, Row]]:
        """As `realtime.regressions`, of the rows' fences: `(earlier, later)`, each later one once."""
        named: set[int] = set()
        for group in by_process(rows):
            for before, after in regressions(
                [start(row) for row in group],
                [end(row) for row in group],
                [row.fence or 0 for row in group],
            ):
                named.add(group[after].id)
                yield group[before], group[after]
        known = [row for row in rows if self.bounds(row) is not None]
        if len({row.process for row in known}) < 2:
            return
        for before, after in regressions(
            [self.earliest(row, start(row)) for row in known],
            [self.latest(row, end(row)) for row in known],
            [row.fence or 0 for row in known],
        ):
            if known[after].id not in named:
                yield known[before], known[after]


def by_process(rows: Sequence[Row]) -> Iterable[list[Row]]:
    """The rows of each process, whose times need no bounds."""
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.process].append(row)
    return groups.values()


def compare_clocks(rows: Iterable[Row], decided: Callable[[Row], Sequence[Decision]]) -> Clocks:
    """The bounds that the writes of `rows` set; `decided` finds what the resource did with one."""
    lows: dict[int, tuple[int, Row]] = {}
    highs: dict[int, tuple[int, Row]] = {}
    for row in rows:
        sent, answered = row.write_sent, row.write_done
        decisions = decided(row) if sent is not None else ()
        if sent is None or not decisions:
            continue
        low = sent - min([decision.started for decision in decisions])
        if row.process not in lows or low > lows[row.process][0]:
            lows[row.process] = low, row
        # A write that was sent again may be decided once more after it was answered: the first counts.
        answers = [d.decided for d in decisions if d.outcome in _ANSWERS.get(row.write, ())]
        if answered is not None and answers:
            high = answered - min(answers)
            if row.process not in highs or high < highs[row.process][0]:
                highs[row.process] = high, row
    return Clocks(
        {
            process: Ahead(low, highs[process][0], row, highs[process][1])
            for process, (low, row) in lows.items()
            if process in highs
        }
    )
