"""The terms of a hot key's cycle: what passes between two grants while somebody waits.

    work      granted → write sent
    write     write sent → its reply
    release   reply → `release` returned
    hand-off  … → the next grant; negative where the next holder knew before `release` returned

A cycle counts when anybody waited at its end, whoever was let in next: a waiter that sleeps while the
lock is free is part of what the lock costs. The terms are what the clients saw; what they predict is held
against what another process counted, the resource.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.history import Row

_MS = 1e6


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
    """The mean cycle of the rows' one key. `patience` (seconds) tells when those left who gave up."""
    holders = sorted((row for row in rows if row.granted is not None), key=lambda row: row.granted or 0)
    came = sorted(row.called for row in rows if row.called is not None)
    left = sorted(_left(row, patience) for row in rows if row.called is not None)
    sums = [0, 0, 0, 0]
    cycles = 0
    for holder, following in pairwise(holders):
        granted, sent, done = holder.granted, holder.write_sent, holder.write_done
        released, next_grant = holder.released, following.granted
        if granted is None or sent is None or done is None or released is None or next_grant is None:
            continue
        end = min(released, next_grant)
        if bisect_right(came, end) <= bisect_right(left, end - 1):
            continue  # nobody waited: the key was idle for want of arrivals
        cycles += 1
        for place, term in enumerate((sent - granted, done - sent, released - done, next_grant - released)):
            sums[place] += term
    if not cycles:
        return Terms()
    work, write, release, handoff = (term / cycles / _MS for term in sums)
    return Terms(cycles, work, write, release, handoff, saturated=2 * cycles > len(holders))


def _left(row: Row, patience: float | None) -> int:
    """When the arrival stopped waiting."""
    if row.granted is not None:
        return row.granted
    return row.intended + round((patience or 3600.0) * 1e9)
