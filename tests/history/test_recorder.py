"""The recorder loses nothing, folds in bounded slices, and merges over processes."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from harness.history import HISTORY_FILE, HistoryWriter, Row, load
from harness.history.recorder import LATENCIES, Counters, Recorder, Recording

MS = 1_000_000
SECOND = 1000 * MS


def served(number: int, at: int, *, wait: int = 5 * MS) -> Row:
    """An arrival that was due at `at`, waited 1 ms in the backlog and then `wait` for the lock."""
    row = Row(number, 0, number % 10, "k", at, dispatched=at + MS, called=at + MS)
    row.granted = at + MS + wait
    row.write_sent = row.granted + 2 * MS
    row.write_done = row.write_sent + 3 * MS
    row.released = row.write_done + 4 * MS
    row.owner, row.fence, row.outcome, row.write = f"o-{number}", number + 1, "ok", "accepted"
    return row


def recorder() -> Recorder:
    return Recorder(origin_ns=time.perf_counter_ns())


def test_each_latency_is_the_difference_that_its_name_says() -> None:
    one = recorder()
    one.record(served(0, 0))
    one.connection(8 * MS)
    one.lag(7 * MS)
    total = one.close().total
    expected = dict(zip(LATENCIES, [6, 5, 9, 3, 4, 8, 7], strict=True))
    assert {name: values.max / MS for name, values in total.items()} == expected
    assert all(values.count == 1 for values in total.values())


def test_waiting_in_the_backlog_counts_for_the_user_but_not_for_the_lock() -> None:
    one = recorder()
    row = served(0, 0)
    row.intended -= 1000 * MS
    one.record(row)
    total = one.close().total
    assert total["arrival_to_grant"].max == 1006 * MS
    assert total["acquire"].max == 5 * MS


def test_arrivals_that_came_early_stay_visible() -> None:
    one = recorder()
    for lag in (-400_000, -1, 0, 250_000):
        one.lag(lag)
    lags = one.close().total["schedule_lag"]
    assert (lags.count, lags.negative, lags.min) == (4, 2, -400_000)
    assert lags.percentiles(50) == [0]


def test_outcomes_are_counted_each_for_itself() -> None:
    one = recorder()
    rows = [served(number, 0) for number in range(3)]
    rows[1].write = rows[1].outcome = "stale"
    rows[2].write, rows[2].outcome, rows[2].write_done = "unknown", "failed", None
    rows.append(Row(3, 0, 1, "k", 0, called=0, outcome="timed_out"))
    rows.append(Row(4, 0, 1, "k", 0, called=0, granted=5, outcome="lost", paused=True))
    rows.append(Row(5, 0, -1, "k", 0))
    for row in rows:
        one.record(row)
    one.counters.offered, one.counters.dispatched, one.counters.backlog_max = 6, 5, 2
    recording = one.close()
    assert recording.counters == Counters(
        offered=6, dispatched=5, backlog_max=2, acquired=4, timed_out=1, failed=1, lost=1, abandoned=1,
        accepted=1, stale=1, unknown=1, paused=1,
    )  # fmt: skip
    assert recording.arrivals() == {
        "offered": 6, "dispatched": 5, "acquired": 4, "timed_out": 1, "failed": 1, "lost": 1,
        "abandoned": 1, "backlog_max": 2,
    }  # fmt: skip


def test_everything_recorded_is_in_the_history_in_the_order_of_its_end(tmp_path: Path) -> None:
    path = tmp_path / HISTORY_FILE
    one = Recorder(HistoryWriter(path, Row, origin_ns=0), origin_ns=0)
    rows = [served(number, number * MS) for number in range(1000)]
    for row in rows:
        one.record(row)
    one.close()
    history = load(path)
    assert history.rows == rows
    assert history.complete


def test_a_budget_bounds_how_long_one_fold_takes() -> None:
    one = recorder()
    for number in range(20_000):
        one.record(served(number, 0))
    left = one.fold(budget_ns=1)
    assert 0 < 20_000 - left <= 16, "one slice, as the budget was gone after it"
    folds = 0
    while left:
        before, left = left, one.fold(budget_ns=1)
        assert left < before
        folds += 1
    assert folds > 100
    assert one.close().counters.acquired == 20_000


def test_what_is_due_is_asked_for_between_slices_of_a_fold() -> None:
    one, steps = recorder(), []
    for number in range(1000):
        one.record(served(number, 0))
    one.see = lambda batch: steps.append(len(batch))
    one.between = lambda: steps.append(0)
    assert one.fold() == 0
    assert steps[1::2] == [0] * (len(steps) // 2), "it asks after every slice"
    assert max(steps) <= 16, "nobody waits for longer than a slice takes"
    assert sum(steps) == 1000


async def test_keep_up_folds_while_the_run_goes_on_and_cancelling_it_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / HISTORY_FILE
    start = time.perf_counter_ns()
    one = Recorder(HistoryWriter(path, Row, origin_ns=start), origin_ns=start)
    task = asyncio.create_task(one.keep_up(every=0.001))
    async with asyncio.timeout(30):
        for number in range(500):
            one.record(served(number, time.perf_counter_ns() - start))
            one.lag(10)
        while one.counters.acquired < 500:
            await asyncio.sleep(0.001)
        one.record(served(500, time.perf_counter_ns() - start))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    recording = one.close()
    assert recording.counters.acquired == 501
    assert recording.total["schedule_lag"].count == 500
    assert len(load(path).rows) == 501


def test_latency_over_time_shows_the_second_in_which_it_was_bad() -> None:
    one = recorder()
    for second in range(6):
        for number in range(50):
            wait = 900 * MS if second == 3 else 5 * MS
            one.record(served(number, second * SECOND + number * MS, wait=wait))
    series = dict(one.close().series("acquire"))
    assert sorted(series) == [0, 1, 2, 3, 4, 5]
    medians = {second: values.percentiles(50)[0] for second, values in series.items()}
    assert max(medians, key=medians.__getitem__) == 3
    assert sum(values.count for values in series.values()) == 300


def test_closed_intervals_add_up_to_the_total() -> None:
    """Also when rows come in late, for a second that has been closed already."""
    one = Recorder(origin_ns=time.perf_counter_ns() - 100 * SECOND)
    for second in (0, 1, 2, 50, 3, 99, 0):
        one.record(served(second, second * SECOND))
        one.fold()
    recording = one.close()
    assert sum(values.count for _, values in recording.series("hold")) == 7
    assert recording.total["hold"].count == 7


def test_a_snapshot_tells_rates_since_the_last_one_and_recent_latencies() -> None:
    one = recorder()
    one.counters.offered = 500
    for number in range(400):
        one.record(served(number, number * MS))
    one.fold()
    first = one.snapshot(SECOND)
    assert (first.offered_per_s, first.acquired_per_s, first.pending) == (500, 400, 0)
    assert first.recent["acquire"].count == 400
    assert first.recent["acquire"].percentiles(50)[0] == pytest.approx(5 * MS, rel=0.001)
    one.counters.offered += 100
    one.record(served(400, 400 * MS))
    second = one.snapshot(3 * SECOND)
    assert (second.offered_per_s, second.acquired_per_s, second.pending) == (50, 0, 1)
    assert first.counters.offered == 500, "a snapshot is a copy"


def test_recordings_of_several_processes_merge_and_travel_as_json() -> None:
    recordings = []
    for process in range(3):
        one = recorder()
        one.counters.offered, one.counters.backlog_max = 20, 5
        for number in range(20):
            one.record(served(number, number * 200 * MS, wait=(process + 1) * MS))
        one.lag(-5)
        recordings.append(one.close())
    travelled = [Recording.from_json(json.loads(json.dumps(part.to_json()))) for part in recordings]
    whole = Recording.merged(travelled)
    assert whole.counters.offered == whole.counters.acquired == 60
    assert whole.counters.backlog_max == 15, "an upper bound: the sum"
    assert whole.total["acquire"].count == 60
    assert whole.total["acquire"].max == 3 * MS
    assert whole.total["schedule_lag"].negative == 3
    assert sum(values.count for _, values in whole.series("acquire")) == 60
    assert [second for second, _ in whole.series("acquire")] == [0, 1, 2, 3]


def test_a_run_without_arrivals_has_figures_too() -> None:
    total = recorder().close().total
    assert set(total) == set(LATENCIES)
    assert all(values.count == 0 for values in total.values())
