"""Doctored runs of resources that lied, forgot or were told by others what to refuse."""

from harness.history import HISTORY_FILE, RESOURCE_FILE, Decision
from harness.history.rows import digest
from tests.histories.doctored import MS, Run, ok, unknown, violated


@violated("exclusion", "two writers")
def the_clients_know_better_than_the_log(run: Run) -> None:
    """Fence 1 was sent after fence 2 had been acknowledged; the log claims the right order."""
    row = run.rows[0]
    row.outcome = "lost"
    row.write_sent, row.write_done, row.releasing, row.released = (150 * MS, 153 * MS, 154 * MS, 155 * MS)
    row.valid_until = 100 * MS


@unknown("agreement", "contradicts the clients' times")
def decided_before_it_was_sent(run: Run) -> None:
    run.decision(3).started -= 50 * MS
    run.decision(3).decided -= 50 * MS
    run.in_order()


@unknown("agreement", "contradicts the clients' times")
def decided_after_it_was_answered(run: Run) -> None:
    run.decision(3).started += 50 * MS
    run.decision(3).decided += 50 * MS
    run.in_order()


@unknown("agreement", "contradicts the clients' times")
def took_longer_inside_than_outside(run: Run) -> None:
    run.decision(7).started -= 3 * MS
    run.decision(7).decided += 3 * MS
    run.in_order()


@violated("contents", "other bytes")
def other_bytes_were_stored(run: Run) -> None:
    run.decision(3).digest = digest(b"something else")


@violated("contents", "other bytes")
def the_bytes_of_another_were_stored(run: Run) -> None:
    run.decision(3).digest = run.decision(4).digest
    run.in_order()


@violated("contents", "does not hold what was written")
def another_value_was_read_back(run: Run) -> None:
    run.values[0]["digest"] = digest(b"something else")


@violated("contents", "read back at version")
def an_older_value_was_read_back(run: Run) -> None:
    first = next(decision for decision in run.log if decision.key == run.values[0]["value"])
    run.values[0] |= {"version": first.version, "digest": first.digest}


@violated("contents", "read back at version 0")
def nothing_was_read_back(run: Run) -> None:
    run.values[0] |= {"version": 0, "digest": digest(b"")}


@unknown("contents", "the log lacks it")
def a_later_value_was_read_back(run: Run) -> None:
    run.values[0]["version"] += 1


@ok
def nobody_read_back_anything(run: Run) -> None:
    run.values.clear()


@ok
def digests_were_not_logged(run: Run) -> None:
    for decision in run.log:
        decision.digest = None
    run.config["body"] = "something else"
    run.values.clear()


@violated("exclusion", "without the fence that its holder has")
def a_fenced_holder_wrote_without_its_fence(run: Run) -> None:
    run.rows[3].write = "unknown"
    run.rows[3].outcome = "failed"
    run.rows[3].write_done = None
    run.decision(3).token = 0
    run.in_order()


@unknown("exclusion", "carried no fence")
def somebody_wrote_without_a_fence(run: Run) -> None:
    run.log.append(Decision("a", 0, 0, started=850 * MS, decided=851 * MS, owner="a stranger"))
    run.in_order()


@violated("lost_updates", "not in the log")
def an_acknowledged_write_is_missing(run: Run) -> None:
    run.log.remove(run.decision(4))
    run.in_order()


@violated("lost_updates", "applied twice")
def a_write_was_applied_twice(run: Run) -> None:
    first = run.decision(4)
    again = Decision("a", 0, first.token, owner=first.owner, digest=first.digest)
    again.started, again.decided = first.started + 1, first.decided + 1
    run.log.append(again)
    run.in_order()


@violated("stale_writes", "stale write accepted")
def a_stale_write_was_accepted(run: Run) -> None:
    row, decision = run.rows[0], run.decision(0)
    row.paused, row.outcome = True, "lost"
    row.write_sent, row.write_done, row.releasing, row.released = (
        2500 * MS,
        2503 * MS,
        2504 * MS,
        2505 * MS,
    )
    row.valid_until = 50 * MS
    decision.started, decision.decided = 2501 * MS, 2502 * MS
    run.in_order()


@violated("stale_writes", "forgot its mark")
def the_mark_was_forgotten(run: Run) -> None:
    run.decision(7).seen = 0


@violated("agreement", "refused for no reason")
def refused_for_no_reason(run: Run) -> None:
    run.refuse(7, 7)
    run.in_order()


@violated("agreement", "was told")
def refused_and_written_all_the_same(run: Run) -> None:
    run.refuse(7, 9)
    run.decision(7).outcome = "accepted"
    run.in_order()


@unknown("completeness", "another run's marks")
def everything_was_refused_for_another_runs_marks(run: Run) -> None:
    for number in range(8):
        run.refuse(number, 400)
    run.values.clear()
    for decision in run.log:
        decision.version = 400


@unknown("completeness", "another run's marks")
def some_were_refused_for_another_runs_marks(run: Run) -> None:
    for number in (0, 1, 3):
        run.refuse(number, 4000)
        run.decision(number).version = 400
    for seen, number in ((4000, 4), (5, 6), (7, 7)):
        run.decision(number).seen = max(seen, 4000)
        run.rows[number].fence = run.decision(number).token = 5000 + number
    run.decision(6).seen, run.decision(7).seen = 5004, 5006
    for number in (4, 6, 7):
        run.decision(number).version = 400 + number
    run.decision(6).version, run.decision(7).version = 405, 406
    run.values.clear()


@ok
def a_second_run_whose_fences_go_on(run: Run) -> None:
    run.log_config["after"] = 500
    for row in run.rows:
        row.fence = row.fence and row.fence + 400
    for decision in run.log:
        decision.token += 400
    run.in_order()
    for decision in run.log:
        decision.version = (decision.version or 0) + 300
        decision.seen = decision.seen or 399
    for value in run.values:
        value["version"] += 300


@unknown("agreement", "belong to no arrival")
def a_stranger_writes(run: Run) -> None:
    strange = Decision("a", 0, 1000, started=850 * MS, decided=851 * MS, owner="a stranger", digest="ff")
    run.log.append(strange)
    run.in_order()


@unknown("completeness", "lacks the numbers 4 to 4")
def the_log_has_a_gap(run: Run) -> None:
    run.rows[3].write = "unknown"
    run.rows[3].outcome = "failed"
    run.rows[3].write_done = None
    run.log.remove(run.decision(3))
    for decision in run.log:
        decision.version = None
    run.values.clear()


@ok
def the_log_is_of_some_keys_only(run: Run) -> None:
    for decision in run.log:
        decision.seq *= 3
    run.log_config["selected"] = True


@unknown("completeness", "begins with number 3, not 1")
def the_log_begins_late(run: Run) -> None:
    for number in (0, 1):
        run.rows[number].write = "unknown"
        run.rows[number].outcome = "failed"
        run.rows[number].write_done = None
        run.log.remove(run.decision(number))


@unknown("completeness", "is empty")
def the_log_is_empty(run: Run) -> None:
    for row in run.rows[:8]:
        row.write, row.outcome, row.write_done = "unknown", "failed", None
    run.log.clear()
    run.values.clear()


@unknown("completeness", "no log of the resource")
def there_is_no_log(run: Run) -> None:
    run.without = (RESOURCE_FILE,)


@unknown("completeness", "no write was accepted")
def no_write_was_answered(run: Run) -> None:
    for row in run.rows[:8]:
        row.write, row.outcome, row.write_done = "unknown", "failed", None


@ok
def some_writes_were_not_answered(run: Run) -> None:
    for row in run.rows[:4]:
        row.write, row.outcome, row.write_done = "unknown", "failed", None


@unknown("completeness", "nothing arrived")
def nobody_came(run: Run) -> None:
    run.rows.clear()
    run.log.clear()
    run.values.clear()


@unknown("completeness", "was granted the lock")
def nobody_was_granted_the_lock(run: Run) -> None:
    for row in run.rows:
        for name in ("granted", "write_sent", "write_done", "releasing", "released"):
            setattr(row, name, None)
        row.owner = row.fence = row.valid_until = None
        row.write, row.outcome = "none", "timed_out"
    run.log.clear()
    run.values.clear()


@unknown("holders", "until when 8 of 8 holds were valid")
def no_hold_says_how_long(run: Run) -> None:
    run.as_before(ttl=False)
    for row in run.rows[:8]:
        row.outcome = "lost"


@unknown("completeness", "no end mark")
def the_end_of_both_files_is_missing(run: Run) -> None:
    run.ends = {HISTORY_FILE: None, RESOURCE_FILE: None}
