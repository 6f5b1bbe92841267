"""The cycle of a key: what passes from one grant to the next, and when it counts as contended.

    work      granted → write sent
    write     write sent → its reply
    release   reply → `release` returned
    hand-off  … → the next grant; negative where the next holder knew before `release` returned

A cycle is contended when anybody waited at its end, whoever was let in next: a waiter that sleeps while the
lock is free is part of what the lock costs.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from operator import attrgetter

from harness.history import Row

_MS = 1e6
_FOR_EVER = 3600.0


@dataclass(frozen=True, slots=True)
class Handoff:
    """One holder of a key, and the next."""

    holder: Row
    following: Row | None
    """None: it was the last."""
    awaited: bool
    """Anybody waited at its end."""

    @property
    def terms(self) -> tuple[int, int, int, int] | None:
        """Work, write, release and hand-off in nanoseconds; None unless each was recorded."""
        holder = self.holder
        marks = [holder.granted, holder.write_sent, holder.write_done, holder.released]
        marks.append(self.following.granted if self.following is not None else None)
        times = [mark for mark in marks if mark is not None]
        if len(times) < len(marks):
            return None
        work, write, release, handoff = (end - begin for begin, end in pairwise(times))
        return work, write, release, handoff


def handoffs(rows: Sequence[Row], patience: float | None = None) -> Iterator[Handoff]:
    """Every turn of every key in order. `patience` (seconds) tells when those left who gave up."""
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[row.key].append(row)
    for arrivals in by_key.values():
        holders = sorted((row for row in arrivals if row.granted is not None), key=attrgetter("granted"))
        came = sorted(row.called for row in arrivals if row.called is not None)
        left = sorted(_left(row, patience) for row in arrivals if row.called is not None)
        for holder, following in zip_longest(holders, holders[1:]):
            ends = [holder.released, None if following is None else following.granted]
            end = min((end for end in ends if end is not None), default=holder.granted or 0)
            awaited = bisect_right(came, end) > bisect_right(left, end - 1)
            yield Handoff(holder, following, awaited)


def _left(row: Row, patience: float | None) -> int:
    """When the arrival stopped waiting."""
    if row.granted is not None:
        return row.granted
    return row.intended + round((patience or _FOR_EVER) * 1e9)


@dataclass(frozen=True, slots=True)
class Terms:
    """Means in milliseconds, over the contended cycles of one key."""

    cycles: int = 0
    """How many cycles were contended."""
    work: float = 0.0
    write: float = 0.0
    release: float = 0.0
    handoff: float = 0.0

    saturated: bool = False
    """Most cycles were contended: the key was the limit, not the arrivals."""

    @property
    def total(self) -> float:
        return self.work + self.write + self.release + self.handoff

    def ceiling(self, offered: float) -> float:
        """Grants per second that these terms allow: one cycle after the other, and not more than come."""
        return min(offered, 1e3 / self.total) if self.saturated else offered


def measure_terms(rows: Sequence[Row], patience: float | None) -> Terms:
    """The mean cycle of the rows' one key, as the clients saw it."""
    all_handoffs = list(handoffs(rows, patience))
    contended = [handoff.terms for handoff in all_handoffs if handoff.awaited and handoff.terms is not None]
    cycles = len(contended)
    if not cycles:
        return Terms()
    work, write, release, handoff = (sum(term) / cycles / _MS for term in zip(*contended, strict=True))
    return Terms(cycles, work, write, release, handoff, saturated=2 * cycles > len(all_handoffs))
