"""Turns finished arrivals into latency distributions, counters and history rows, off the hot path.

A contender pays for one `append` per arrival. Everything else happens in `fold`, in slices that
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
    Recording.merged([recording, *others])
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from harness.history import HistoryWriter, Row
from harness.history.distribution import Distribution
from harness.history.recording import INTERVAL_NS, LATENCIES, Counters, Recording

__all__ = ["INTERVAL_NS", "LATENCIES", "SHOWN", "Counters", "Recorder", "Recording", "Snapshot"]

SHOWN = ("arrival_to_grant", "acquire", "schedule_lag")

# Rows per slice of `fold`: about 0.1 ms, the longest that folding makes an arrival wait.
_SLICE = 16
# Beyond this many unfolded rows memory matters more than punctuality.
_MAX_PENDING = 100_000
# Intervals that are kept open: rows come nearly, not quite, in the order in which they ended.
_OPEN_INTERVALS = 3


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

    def extend(self, latency: str, values: Iterable[int]) -> None:
        self._values[LATENCIES.index(latency)].extend(values)

    def distill(self) -> dict[str, Distribution]:
        """The distributions, with all that was appended so far."""
        for values, distribution in zip(self._values, self._distributions.values(), strict=True):
            if values:
                distribution.add(values)
                values.clear()
        return self._distributions


class Recorder:
    """Collects one process's arrivals. Not thread safe: it belongs to one event loop.

    `origin_ns` is `time.perf_counter_ns()` at the run's start, the zero of every time in a row. Arrivals
    that were due in the first `warm_up_ns` are in the history and in nothing else.
    """

    def __init__(
        self, history: HistoryWriter[Row] | None = None, *, origin_ns: int, warm_up_ns: int = 0
    ) -> None:
        self.counters = Counters()
        self.history = history
        self._origin_ns = origin_ns
        self._warm_up_ns = warm_up_ns
        self.see: Callable[[list[Row]], None] | None = None
        """Shown every batch of rows that is folded, those of the warm-up as well."""
        self.between: Callable[[], object] = lambda: None
        """Called between two slices: what is due then need not wait for the last."""
        self._pending: deque[Row] = deque()
        self._lags: list[int] = []
        self._connections: list[int] = []
        self.record: Callable[[Row], None] = self._pending.append
        """Hand over an arrival that is over. Do not change the row afterwards."""
        self.lag: Callable[[int], None] = self._lags.append
        """Hand over how many nanoseconds after its due time an arrival was let go; negative is early."""
        self.connection: Callable[[int], None] = self._connections.append
        """Hand over for how many nanoseconds a holder waited for a connection to the resource."""
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
        for values, latency in ((self._lags, "schedule_lag"), (self._connections, "connection")):
            if values:
                if began - self._origin_ns >= self._warm_up_ns:
                    self._interval(now).extend(latency, values)
                values.clear()
        pending = self._pending
        while pending:
            batch = [pending.popleft() for _ in range(min(_SLICE, len(pending)))]
            if self.history is not None:
                self.history.write(batch)
            if self.see is not None:
                self.see(batch)
            if self._warm_up_ns:
                batch = [row for row in batch if row.intended >= self._warm_up_ns]
            self._digest(batch)
            if budget_ns is not None and time.perf_counter_ns() - began >= budget_ns:
                break
            self.between()
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
                to_grant, acquire, hold, write, release, *_ = self._interval(second).appends
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
            elif row.shared and released is not None and row.releasing is not None:
                release(released - row.releasing)  # a reader writes nothing
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
