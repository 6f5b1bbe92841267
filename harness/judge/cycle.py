"""The cycle of a key: what passes from one grant to the next, and when it counts as contended.

    work      granted → write sent
    write     write sent → its reply
    hand-off  reply → the next grant; its first part, until `release` returned, is the release

A cycle is contended when anybody waited at its end, whoever was let in next: a waiter that sleeps while the
lock is free is part of what the lock costs.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from harness.history import Row

_SECOND = 1e9
_FOR_EVER = 3600.0


@dataclass(frozen=True, slots=True)
class Cycle:
    """The mean contended cycle of a key, in seconds to the nanosecond."""

    count: int = 0
    """How many cycles were contended."""
    work: float = 0.0
    write: float = 0.0
    handoff: float = 0.0
    frozen: float = 0.0
    """Total time for which a holder frozen on purpose kept a key from everybody else."""
    utilisation: float = 0.0
    """Share of the run for which a wanted key was in use, mean over the keys that were wanted."""
    per_hold: float = 0.0
    """For how long one hold kept its key from others, mean over all, contended or not."""
    # Not in a summary, and so not part of what makes a cycle equal to one that was read from there.
    release: float = field(default=0.0, compare=False)
    """The part of the hand-off until `release` returned: the next holder may know before, or after."""
    holds: int = field(default=0, compare=False)
    """Of holders that were not frozen, contended or not."""

    @property
    def seconds(self) -> float:
        return self.work + self.write + self.handoff

    @property
    def ceiling(self) -> float:
        """Locked sections per second that one key can do; 0 when no cycle was contended.

        Over all holds, as the throughput is: those that nobody waited for are shorter, and a ceiling
        from the others alone would be exceeded.
        """
        return 1.0 / (self.per_hold or self.seconds) if self.count else 0.0

    def served(self, offered: float) -> float:
        """Grants per second of this many offered: where most cycles were contended, one after the other."""
        return min(offered, 1.0 / self.seconds) if 2 * self.count > self.holds else offered

    def to_json(self) -> dict[str, Any]:
        """The `cycle_s` of `summary.json`."""
        figures = asdict(self)
        del figures["release"], figures["holds"]
        return figures | {"ceiling_per_s": round(self.ceiling, 1)}


def measure_cycle(rows: Sequence[Row], seconds: float, patience: float | None = None) -> Cycle:
    """The mean cycle over all keys. `seconds` is the length of the run; see `handoffs` for `patience`."""
    uses = _uses([row for row in rows if not row.shared], patience).values()
    return sum(uses, _Use()).cycle(seconds, len(uses))


def busiest_key(
    rows: Sequence[Row], seconds: float, patience: float | None = None
) -> tuple[str, Cycle] | None:
    """The key that was in use most, and its own cycle; `None` when nothing was granted."""
    uses = _uses(rows, patience)
    if not uses:
        return None
    key = max(uses, key=lambda key: uses[key].in_use)
    return key, uses[key].cycle(seconds, 1)


@dataclass(frozen=True, slots=True)
class Handoff:
    """One holder of a key, and the next."""

    holder: Row
    following: Row | None
    """None: it was the last."""
    awaited: bool
    """Anybody waited at its end."""


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
    return row.intended + round((patience or _FOR_EVER) * _SECOND)


@dataclass(slots=True)
class _Use:
    """How keys were used: counts, and sums in nanoseconds."""

    holds: int = 0
    held: int = 0
    """For how long these holds kept their key from others."""
    in_use: int = 0
    count: int = 0
    work: int = 0
    write: int = 0
    handoff: int = 0
    release: int = 0
    frozen: int = 0

    def __add__(self, other: "_Use") -> "_Use":
        return _Use(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def add(self, turn: Handoff) -> None:
        holder, granted = turn.holder, turn.holder.granted or 0
        sent, done, released = holder.write_sent, holder.write_done, holder.released
        handed_over = turn.following.granted if turn.awaited and turn.following is not None else None
        used = (handed_over or released or done or granted) - granted
        self.in_use += used
        if holder.paused:
            self.frozen += used if handed_over is not None else 0
            return
        self.holds += 1
        self.held += used
        if sent is None or done is None or released is None or handed_over is None or done > handed_over:
            return
        self.count += 1
        self.work += sent - granted
        self.write += done - sent
        self.release += released - done
        self.handoff += handed_over - done

    def cycle(self, seconds: float, keys: int) -> Cycle:
        """The means, over a run of that length with that many wanted keys."""
        return Cycle(
            self.count,
            _mean(self.work, self.count),
            _mean(self.write, self.count),
            _mean(self.handoff, self.count),
            _mean(self.frozen, 1),
            round(self.in_use / _SECOND / (max(seconds, 1e-9) * max(keys, 1)), 9),
            _mean(self.held, self.holds),
            _mean(self.release, self.count),
            self.holds,
        )


def _mean(nanoseconds: int, count: int) -> float:
    return round(nanoseconds / (max(count, 1) * _SECOND), 9)


def _uses(rows: Sequence[Row], patience: float | None) -> dict[str, _Use]:
    uses: dict[str, _Use] = defaultdict(_Use)
    for turn in handoffs(rows, patience):
        uses[turn.holder.key].add(turn)
    return uses
