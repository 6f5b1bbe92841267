"""What the live page is told about the lock: a bounded sample, whoever is there now, and every wait once."""

from harness.history.rows import Row
from harness.live.watch import SAMPLE, LockWatch, half_octave, merged, shown_keys

MS = 1_000_000


def over(number: int, key: str = "hot", **more: object) -> Row:
    row = Row(number, 0, 0, key, number * MS, called=number * MS, granted=number * MS + 500_000, fence=number)
    row.released = number * MS + 900_000
    row.write = "accepted"
    for name, value in more.items():
        setattr(row, name, value)
    return row


def test_a_report_names_the_last_holders_only_and_every_wait_once() -> None:
    watch = LockWatch(["hot"])
    watch.see([over(number) for number in range(3 * SAMPLE)])
    told = watch.report()
    assert [row[6] for row in told["keys"]["hot"]["past"]] == list(range(2 * SAMPLE, 3 * SAMPLE))
    assert sum(told["waits"].values()) == 3 * SAMPLE
    assert watch.report()["waits"] == {}


def test_who_holds_and_who_waits_is_told_before_it_is_over() -> None:
    watch = LockWatch(["hot"])
    holder, waiter = over(1, released=None), over(2, granted=None, fence=None)
    watch.begin(holder)
    watch.begin(waiter)
    told = watch.report()["keys"]["hot"]
    assert ([row[6] for row in told["holds"]], told["waiting"], told["waiters"]) == ([1], 1, [[2, 2.0]])
    watch.end(holder)
    watch.end(waiter)
    assert watch.report()["keys"]["hot"] == {"holds": [], "waiting": 0, "waiters": [], "past": []}


def test_a_refused_write_is_told_whatever_its_key() -> None:
    watch = LockWatch(shown_keys(1000))
    watch.see([over(7, key="key-999", write="stale")])
    assert [row[0] for row in watch.report()["refused"]] == ["key-999"]


def test_of_several_processes_only_the_time_of_which_all_have_told_is_shown() -> None:
    busy, quiet = LockWatch(["hot"]), LockWatch(["hot"])
    busy.see([over(number) for number in range(100)])
    quiet.see([over(10), over(99)])
    past = merged([busy.report(), quiet.report()])["keys"]["hot"]["past"]
    assert len(past) == SAMPLE
    assert past == sorted(past, key=lambda row: row[1])
    assert min(row[6] for row in past) >= 100 - SAMPLE


def test_two_buckets_for_every_doubling() -> None:
    assert [half_octave(value) - half_octave(1024) for value in (1024, 1535, 1536, 2047, 2048)] == [
        0,
        0,
        1,
        1,
        2,
    ]
    assert half_octave(-5) == half_octave(0)
