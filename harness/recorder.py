"""Turns finished arrivals into latency distributions, counters and history rows, off the hot path.

A contender pays for one `list.append` per arrival. Everything else happens in `fold`, in slices that
a time budget bounds, on whatever tick the runner has:

    start = time.perf_counter_ns()
    recorder = Recorder(HistoryWriter(path, Row, origin_ns=start), origin_ns=start)
    row = Row(number, process, -1, key, intended)     # the runner, when the arrival is due
    recorder.lag(now - intended)                      # how late (or, if negative, early) that was
    recorder.counters.offered += 1
    ...                                               # the contender fills the row in
    recorder.record(row)                              # … and hands it over when the arrival is over
    asyncio.create_task(recorder.keep_up())           # folds every 20 ms
    recorder.snapshot(now)                            # for a live display
    recording = recorder.close()                      # folds the rest, closes the history
    Recording.merged([recording, *others]).latency_ms()

Six latencies are kept, in nanoseconds:

    arrival_to_grant   intended → granted: what a user waits, the backlog included
    acquire            called → granted: the lock's own part
    hold               granted → released
    write              write_sent → write_done
    release            write_done → released
    schedule_lag       when the pacer let the arrival go, less when it was due
"""

import asyncio
import time
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from harness.distribution import Distribution
from harness.history import HistoryWriter, Row

LATENCIES = ("arrival_to_grant", "acquire", "hold", "write", "release", "schedule_lag")
SHOWN = ("arrival_to_grant", "acquire", "schedule_lag")
INTERVAL_NS = 1_000_000_000

# Rows per slice of `fold`: about a third of a millisecond, the longest that folding may hold up the
# event loop at once.
_SLICE = 64
# Beyond this many unfolded rows memory matters more than punctuality.
_MAX_PENDING = 100_000
# Intervals that are kept open: rows come nearly, not quite, in the order in which they ended.
_OPEN_INTERVALS = 3


@dataclass(slots=True)
class Counters:
    """What has happened so far. The runner counts the first four; `fold` counts the rest from rows."""

    offered: int = 0
    """Arrivals that were due."""
    dispatched: int = 0
    """Arrivals that a contender took."""
    backlog: int = 0
    """Arrivals that wait for a contender now."""
    backlog_max: int = 0

    acquired: int = 0
    timed_out: int = 0
    failed: int = 0
    lost: int = 0
    abandoned: int = 0
    accepted: int = 0
    """Writes that the resource acknowledged."""
    stale: int = 0
    """Writes that the resource refused for their fence."""
    unknown: int = 0
    """Writes without a reply."""
    paused: int = 0


@dataclass(slots=True, frozen=True)
class Snapshot:
    """The state of a run for a live display. Times in nanoseconds since the run's start."""

    at: int
    counters: Counters
    offered_per_s: float
    """Over the time since the snapshot before."""
    acquired_per_s: float
    pending: int
    """Rows not yet folded: they are not in the counters."""
    recent: Mapping[str, Distribution]
    """The latencies asked for, over the last two to three seconds."""


class Interval:
    """The values of one second, per latency: appended one by one, distilled in bulk."""

    __slots__ = ("_distributions", "_values", "appends")

    def __init__(self) -> None:
        self._values: tuple[list[int], ...] = tuple([] for _ in LATENCIES)
        self._distributions = {name: Distribution() for name in LATENCIES}
        self.appends: tuple[Callable[[int], None], ...] = tuple(values.append for values in self._values)

    def distill(self) -> dict[str, Distribution]:
        """The distributions, with all that was appended so far."""
        for values, distribution in zip(self._values, self._distributions.values(), strict=True):
            if values:
                distribution.add(values)
                values.clear()
        return self._distributions


def _distributions() -> dict[str, Distribution]:
    return {name: Distribution() for name in LATENCIES}


@dataclass(slots=True)
class Recording:
    """What one process measured: plain data that can be sent, merged and reported."""

    counters: Counters = field(default_factory=Counters)
    total: dict[str, Distribution] = field(default_factory=_distributions)
    packed: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Per second of the run and latency; packed, so that an hour takes some twenty megabytes."""

    def series(self, latency: str) -> Iterator[tuple[int, Distribution]]:
        """One latency over time: `(second of the run, distribution)`, quiet seconds left out.

        An arrival counts in the second in which it was over.
        """
        for index in sorted(self.packed):
            if latency in self.packed[index]:
                yield index, Distribution.unpack(self.packed[index][latency])

    def latency_ms(self) -> dict[str, dict[str, float | int]]:
        """The `latency_ms` of `summary.json`; `schedule_lag` also says how many arrivals came early."""
        figures = {name: distribution.summary_ms() for name, distribution in self.total.items()}
        lag = self.total["schedule_lag"]
        figures["schedule_lag"] |= {"early": lag.negative, "min": round(lag.min / 1e6, 6)}
        return figures

    def arrivals(self) -> dict[str, int]:
        """The `arrivals` of `summary.json`."""
        names = (
            "offered",
            "dispatched",
            "acquired",
            "timed_out",
            "failed",
            "lost",
            "abandoned",
            "backlog_max",
        )
        return {name: getattr(self.counters, name) for name in names}

    @classmethod
    def merged(cls, parts: Iterable["Recording"]) -> "Recording":
        """Several processes' recordings as one. `backlog_max` becomes the sum: an upper bound."""
        whole = cls()
        shared: dict[int, dict[str, list[bytes]]] = {}
        for part in parts:
            for counter in fields(Counters):
                value = getattr(whole.counters, counter.name) + getattr(part.counters, counter.name)
                setattr(whole.counters, counter.name, value)
            for name, distribution in part.total.items():
                whole.total[name].merge(distribution)
            for index, latencies in part.packed.items():
                for name, packed in latencies.items():
                    shared.setdefault(index, {}).setdefault(name, []).append(packed)
        for index, groups in sorted(shared.items()):
            whole.packed[index] = {name: _merge_packed(group) for name, group in groups.items()}
        return whole

    def to_json(self) -> dict[str, Any]:
        """As JSON-safe data, for a parent process."""
        return {
            "counters": asdict(self.counters),
            "total": {name: distribution.to_text() for name, distribution in self.total.items()},
            "intervals": [
                [index, {name: b64encode(packed).decode() for name, packed in latencies.items()}]
                for index, latencies in self.packed.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The reverse of `to_json`."""
        return cls(
            Counters(**data["counters"]),
            {name: Distribution.from_text(text) for name, text in data["total"].items()},
            {
                index: {name: b64decode(text) for name, text in latencies.items()}
                for index, latencies in data["intervals"]
            },
        )


def _merge_packed(parts: list[bytes]) -> bytes:
    if len(parts) == 1:
        return parts[0]
    whole = Distribution()
    for part in parts:
        whole.merge(Distribution.unpack(part))
    return whole.pack()


class Recorder:
    """Collects one process's arrivals. Not thread safe: it belongs to one event loop.

    `origin_ns` is `time.perf_counter_ns()` at the run's start, the zero of every time in a row.
    """

    def __init__(self, history: HistoryWriter[Row] | None = None, *, origin_ns: int) -> None:
        self.counters = Counters()
        self.history = history
        self._origin_ns = origin_ns
        self._pending: deque[Row] = deque()
        self._lags: list[int] = []
        self.record: Callable[[Row], None] = self._pending.append
        """Hand over an arrival that is over. Do not change the row afterwards."""
        self.lag: Callable[[int], None] = self._lags.append
        """Hand over how many nanoseconds after its due time an arrival was let go; negative is early."""
        self._intervals: dict[int, Interval] = {}
        self._oldest = 0
        """Intervals before this one are closed."""
        self._recording = Recording(self.counters)
        self._last = (0, 0, 0)

    def fold(self, budget_ns: int | None = None) -> int:
        """Digest what was recorded, for about `budget_ns` (all of it if `None`); returns the rows left.

        :raises OSError: the history cannot be written.
        """
        began = time.perf_counter_ns()
        now = (began - self._origin_ns) // INTERVAL_NS
        if self._lags:
            lag = self._interval(now).appends[-1]
            for value in self._lags:
                lag(value)
            self._lags.clear()
        pending = self._pending
        while pending:
            batch = [pending.popleft() for _ in range(min(_SLICE, len(pending)))]
            self._digest(batch)
            if self.history is not None:
                self.history.write(batch)
            if budget_ns is not None and time.perf_counter_ns() - began >= budget_ns:
                break
        else:
            # Only when nothing older can still be pending, and one at a time: closing takes about as
            # long as a slice.
            self._close_oldest(before=now - _OPEN_INTERVALS + 1)
        return len(pending)

    async def keep_up(self, every: float = 0.02, budget_ns: int = 400_000) -> None:
        """Fold for ever; cancel it, then `close`. A cancellation loses nothing.

        :raises OSError: the history cannot be written.
        """
        while True:
            left = self.fold(budget_ns)
            if left > _MAX_PENDING:
                left = self.fold()
            await asyncio.sleep(0.001 if left else every)

    def snapshot(self, at: int, latencies: Iterable[str] = SHOWN) -> Snapshot:
        """The state at `at` nanoseconds after the start, from what has been folded.

        Each latency costs 0.1 ms for every thousand recent rows: ask for what will be shown.
        """
        then, offered, acquired = self._last
        counters = replace(self.counters)
        seconds = max(at - then, 1) / 1e9
        self._last = (at, counters.offered, counters.acquired)
        recent = {name: Distribution() for name in latencies}
        for interval in self._intervals.values():
            distributions = interval.distill()
            for name in recent:
                recent[name].merge(distributions[name])
        return Snapshot(
            at=at,
            counters=counters,
            offered_per_s=(counters.offered - offered) / seconds,
            acquired_per_s=(counters.acquired - acquired) / seconds,
            pending=len(self._pending),
            recent=recent,
        )

    def close(self) -> Recording:
        """Fold the rest, close the history file, and return what was measured.

        :raises OSError: the history cannot be written.
        """
        self.fold()
        while self._intervals:
            self._close_oldest(before=max(self._intervals) + 1)
        if self.history is not None:
            self.history.close()
        return self._recording

    def _interval(self, index: int) -> Interval:
        """The interval of that second, or the oldest open one for a row that comes too late."""
        index = max(index, self._oldest)
        interval = self._intervals.get(index)
        if interval is None:
            interval = self._intervals[index] = Interval()
        return interval

    def _close_oldest(self, before: int) -> None:
        index = min(self._intervals, default=before)
        if index < before:
            closed = self._intervals.pop(index).distill()
            self._oldest = index + 1
            self._recording.packed[index] = {
                name: values.pack() for name, values in closed.items() if values.count
            }
            for name, distribution in closed.items():
                self._recording.total[name].merge(distribution)

    def _digest(self, batch: list[Row]) -> None:
        index = -1
        for row in batch:
            granted = row.granted
            done = row.write_done
            released = row.released
            second = (released or done or granted or row.called or row.intended) // INTERVAL_NS
            if second != index:
                index = second
                to_grant, acquire, hold, write, release, _ = self._interval(second).appends
            if granted is not None:
                to_grant(granted - row.intended)
                if row.called is not None:
                    acquire(granted - row.called)
                if released is not None:
                    hold(released - granted)
            if done is not None:
                if row.write_sent is not None:
                    write(done - row.write_sent)
                if released is not None:
                    release(released - done)
        for interval in self._intervals.values():
            interval.distill()
        self._count(batch)

    def _count(self, batch: list[Row]) -> None:
        counters = self.counters
        outcomes = Counter([row.outcome for row in batch])
        counters.acquired += sum([row.granted is not None for row in batch])
        counters.timed_out += outcomes["timed_out"]
        counters.failed += outcomes["failed"]
        counters.lost += outcomes["lost"]
        counters.abandoned += outcomes["abandoned"]
        writes = Counter([row.write for row in batch])
        counters.accepted += writes["accepted"]
        counters.stale += writes["stale"]
        counters.unknown += writes["unknown"]
        counters.paused += sum([row.paused for row in batch])


_ARRIVAL_COUNTERS = ("offered", "dispatched", "acquired", "timed_out", "failed", "lost", "abandoned")
