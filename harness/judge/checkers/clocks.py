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
from operator import attrgetter

from harness.history import Decision, Row

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

    def regressions(self, rows: Sequence[Row], start: str, end: str) -> Iterator[tuple[Row, Row]]:
        """As the function of that name, of the rows' fences: `(earlier, later)`, each later one once.

        `start` and `end` name two times of a row. Those of one process need no bounds.
        """
        starts, ends = map(attrgetter, (start, end))
        groups: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            groups[row.process].append(row)
        named: set[int] = set()
        for group in groups.values():
            fences = [row.fence or 0 for row in group]
            for before, after in regressions([*map(starts, group)], [*map(ends, group)], fences):
                named.add(group[after].id)
                yield group[before], group[after]
        known = [row for row in rows if self.bounds(row) is not None]
        if len({row.process for row in known}) < 2:
            return
        for before, after in regressions(
            [self.earliest(row, starts(row)) for row in known],
            [self.latest(row, ends(row)) for row in known],
            [row.fence or 0 for row in known],
        ):
            if known[after].id not in named:
                yield known[before], known[after]


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


def regressions(
    starts: Sequence[int], ends: Sequence[int], fences: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Every interval whose fence is not above that of one that certainly came before, with that one.

    Somewhere between `starts[i]` and `ends[i]` fence `fences[i]` took its place in the order. Yields
    indexes `(earlier, later)`; of all that came before, the one with the highest fence is named.
    Overlapping intervals have no order, so nothing is said about them. O(n log n).
    """
    by_end = sorted(range(len(ends)), key=ends.__getitem__)
    position = 0
    highest = -1
    for later in sorted(range(len(starts)), key=starts.__getitem__):
        start = starts[later]
        while ends[by_end[position]] < start:
            earlier = by_end[position]
            if highest < 0 or fences[earlier] > fences[highest]:
                highest = earlier
            position += 1
        if highest >= 0 and fences[highest] >= fences[later]:
            yield highest, later
