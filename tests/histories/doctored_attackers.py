"""Doctored runs of attackers, who want `ok` for a lock or resource that is none, or blame for a sound one."""

from dataclasses import replace
from typing import Literal

from harness.history.rows import Fault, digest
from tests.histories.doctored import MS, TTL_MS, Run, ok, unknown, violated


def _displace(run: Run) -> None:
    """Arrival 1 gets the lock of arrival 0, which relies on it for another 50 ms."""
    run.rows[0].releasing = run.rows[0].released = 90 * MS
    run.hold(1, 40)
    run.in_order()


def _unwritten(run: Run, number: int, how: Literal["none", "failed"]) -> None:
    """That arrival sent no write."""
    row = run.rows[number]
    row.write, row.write_sent, row.write_done = how, None, None


# --- what the lock did ---


@violated("holders", "broke its promise")
def two_holders_of_no_name(run: Run) -> None:
    _displace(run)
    for row in run.rows:
        row.owner = None
    for decision in run.log:
        decision.owner = None
    run.config["body"] = "something else"


@unknown("holders", "beside others")
def everybody_claims_to_be_a_reader(run: Run) -> None:
    _displace(run)
    run.config["kind"] = "exclusive"
    for row in run.rows:
        row.shared = row.granted is not None


@unknown("holders", "outlived")
def no_promise_outlasts_its_grant(run: Run) -> None:
    _displace(run)
    for row in run.rows:
        if row.granted is not None:
            row.valid_until = row.granted


def _overstay(run: Run, *, promised: int) -> None:
    """Nobody looks at its lease: all write 100 ms after a promise of so many milliseconds has ended."""
    for number, row in enumerate(run.rows):
        if row.granted is not None:
            run.hold(number, 2 * TTL_MS * number)
            row.valid_until = row.granted + promised * MS
            late = (promised + 100) * MS
            for name in ("write_sent", "write_done", "releasing", "released"):
                setattr(row, name, getattr(row, name) + late)
            run.decision(number).started += late
            run.decision(number).decided += late
    run.in_order()


@ok
def nobody_looks_at_its_lease(run: Run) -> None:
    _overstay(run, promised=TTL_MS * 9 // 10)


@unknown("holders", "less than half a TTL")
def nobody_looks_at_a_lease_of_no_length(run: Run) -> None:
    _overstay(run, promised=TTL_MS * 4 // 10)


@unknown("holders", "outlived")
def nobody_looks_at_a_lease_of_unknown_length(run: Run) -> None:
    _overstay(run, promised=TTL_MS * 9 // 10)
    del run.config["ttl"]


@violated("holders", "broke its promise")
def one_of_those_who_overstay_was_not_alone(run: Run) -> None:
    _overstay(run, promised=TTL_MS * 9 // 10)
    second = run.rows[1]
    second.intended = second.dispatched = second.called = 840 * MS
    second.granted, second.valid_until = 850 * MS, 1750 * MS


@unknown("holders", "nothing tells until when")
def an_accident_that_excuses_all_but_one(run: Run) -> None:
    _displace(run)
    run.faults.append(Fault("flush", 20 * MS, None, {"frees": True}))


@unknown("fence_order", "none of")
def an_accident_that_makes_every_fence_forgotten(run: Run) -> None:
    run.faults.append(Fault("flush", -1 * MS, None, {"forgets": True}))


@unknown("holders", "by their own clocks")
def two_holders_in_processes_that_cannot_be_compared(run: Run) -> None:
    run.processes(2)
    _displace(run)
    for number in (1, 3, 5, 7):
        run.log.remove(run.decision(number))
        run.rows[number].outcome = "failed"
        _unwritten(run, number, "failed")
    run.in_order()


@unknown("holders", "nothing tells that these clocks agree")
def two_holders_behind_slow_writes(run: Run) -> None:
    """Every request takes 80 ms each way, so that the clocks of two processes are known to 160 ms only."""
    run.processes(2)
    _displace(run)
    for row in run.rows:
        if row.write_done is not None:
            row.write_done += 160 * MS
            row.releasing = row.released = row.write_done
            decision = run.decision(row.id)
            decision.started += 80 * MS
            decision.decided += 80 * MS
    run.in_order()


@ok
def permits_that_an_accident_freed(run: Run) -> None:
    run.config["kind"] = "semaphore:1"
    for row in run.rows:
        row.shared = row.granted is not None
    _displace(run)
    run.faults.append(Fault("delete", 30 * MS, 31 * MS, {"frees": True}))


@ok
def a_reader_whose_lock_an_accident_freed(run: Run) -> None:
    run.config["kind"] = "shared:0.5"
    run.rows[0].shared = True
    _displace(run)
    run.log.remove(run.decision(0))
    run.in_order()
    _unwritten(run, 0, "none")
    run.faults.append(Fault("delete", 30 * MS, 31 * MS, {"frees": "a"}))


@ok
def fences_of_readers_that_an_accident_made_forgotten(run: Run) -> None:
    run.config["kind"] = "shared:0.5"
    for number, fence in ((3, 1), (4, 2), (6, 3), (7, 4)):
        run.rows[number].shared = number != 3
        run.rows[number].fence = run.decision(number).token = fence
        if run.rows[number].shared:
            run.log.remove(run.decision(number))
            _unwritten(run, number, "none")
    run.refuse(3, 2)
    run.in_order()
    run.decision(3).outcome = "stale"
    run.faults.append(Fault("flush", 250 * MS, 251 * MS, {"forgets": True, "frees": True}))


@ok
def a_dead_holder_whose_session_was_closed(run: Run) -> None:
    row = run.rows[0]
    row.outcome, row.write, row.releasing, row.released = "abandoned", "unknown", None, None
    row.write_done = None


@ok
def fences_that_leave_some_out(run: Run) -> None:
    for row in run.rows:
        if row.fence is not None:
            row.fence *= 1000
    for decision in run.log:
        decision.token *= 1000
    run.in_order()


@ok
def a_frozen_writer_that_comes_last(run: Run) -> None:
    """It wakes after its lease and after everybody else, and is refused."""
    row, decision = run.rows[0], run.decision(0)
    row.paused, row.valid_until = True, 90 * MS
    row.write_sent, row.write_done = 2 * TTL_MS * MS, (2 * TTL_MS + 4) * MS
    row.releasing = row.released = row.write_done
    row.outcome, row.write, row.seen = "stale", "stale", 8
    decision.outcome = "stale"
    decision.started, decision.decided = (2 * TTL_MS + 1) * MS, (2 * TTL_MS + 2) * MS
    run.in_order()


@ok
def early_timers(run: Run) -> None:
    run.rows[0].intended, run.rows[0].dispatched, run.rows[0].called = 2 * MS, -1 * MS, -1 * MS


@ok
def keys_that_look_like_the_format(run: Run) -> None:
    name = 'a"],["b\n\u2028{"end":9}\x7f🔒'
    for row in run.rows:
        row.key = name if row.key == "a" else row.key
    for decision in run.log:
        decision.key = name if decision.key == "a" else decision.key
    run.in_order()


# --- what the resource did ---


@violated("exclusion", "another fence than its own")
def a_holder_wrote_under_anothers_fence(run: Run) -> None:
    row = run.rows[3]
    row.write, row.outcome, row.write_done = "unknown", "failed", None
    run.decision(3).token = 9
    run.log.remove(run.decision(4))
    run.rows[4].outcome = "failed"
    _unwritten(run, 4, "failed")
    run.rows[4].fence, run.rows[6].fence, run.rows[7].fence = 9, 10, 11
    run.decision(6).token, run.decision(7).token = 10, 11
    run.in_order()


@violated("exclusion", "another key")
def a_holder_wrote_to_another_key(run: Run) -> None:
    row = run.rows[3]
    row.write, row.outcome, row.write_done = "unknown", "failed", None
    run.decision(3).key = "b"
    run.in_order()


@violated("exclusion", "was never granted the lock")
def who_gave_up_wrote_all_the_same(run: Run) -> None:
    row, decision = run.rows[8], run.decision(7)
    row.owner = "owner-8"
    late = type(decision)("a", 0, 9, 0, "accepted", 0, 0, 900 * MS, 901 * MS, "owner-8", digest(b"8 owner-8"))
    run.log.append(late)
    run.in_order()


@violated("contents", "does not hold")
def other_bytes_are_read_back_and_nothing_was_logged(run: Run) -> None:
    for decision in run.log:
        decision.digest = None
    for value in run.values:
        value["digest"] = digest(b"something else")


@ok
def the_right_bytes_are_read_back_and_nothing_was_logged(run: Run) -> None:
    for decision in run.log:
        decision.digest = None


@unknown("contents", "the log lacks it")
def a_value_that_nobody_wrote(run: Run) -> None:
    run.values.append({"value": "c", "version": 3, "digest": digest(b"who was it?")})


@unknown("completeness", "read back twice")
def a_key_with_two_values(run: Run) -> None:
    run.values.insert(0, {"value": "a", "version": 6, "digest": digest(b"another")})


@unknown("completeness", "its digest is None")
def a_value_without_a_digest(run: Run) -> None:
    run.values[0]["digest"] = None


@unknown("completeness", "its key is")
def a_value_of_no_key(run: Run) -> None:
    run.values[0]["value"] = ["a"]


@violated("agreement", "repeats nothing")
def the_repetition_of_a_write_that_never_was(run: Run) -> None:
    row, decision = run.rows[3], run.decision(3)
    row.write, row.outcome, row.write_done = "unknown", "failed", None
    decision.outcome = "repeated"
    run.in_order()


@violated("agreement", "refused for no reason")
def everybody_is_refused_for_the_own_fence(run: Run) -> None:
    for number in (1, 3, 4, 6, 7):
        run.refuse(number, number + 1)
    run.in_order()
    for number in (1, 3, 4, 6, 7):
        run.decision(number).seen = number + 1


@unknown("agreement", "does not say why")
def refused_without_a_word(run: Run) -> None:
    run.refuse(6, 0)
    run.in_order()
    run.decision(6).seen = run.rows[6].seen = None


@ok
def refused_without_a_word_for_a_mark_that_is_known(run: Run) -> None:
    run.refuse(0, 0)
    row, decision = run.rows[0], run.decision(0)
    row.paused, row.valid_until = True, 90 * MS
    row.write_sent, row.write_done = 1500 * MS, 1504 * MS
    row.releasing = row.released = row.write_done
    decision.started, decision.decided = 1501 * MS, 1502 * MS
    run.in_order()
    decision.seen = row.seen = None


@violated("lost_updates", "applied twice")
def a_write_was_applied_twice_under_two_numbers(run: Run) -> None:
    first = run.decision(3)
    run.log.append(replace(first, fence_seq=1, decided=first.decided + 1))
    run.in_order()


@ok
def writes_before_the_first_of_the_log(run: Run) -> None:
    for decision in run.log:
        if decision.key == "a":
            decision.version = (decision.version or 0) + 4
    run.values = [value | {"version": value["version"] + 4 * (value["value"] == "a")} for value in run.values]


@unknown("agreement", "decided before it began")
def decided_before_it_began(run: Run) -> None:
    run.decision(4).started = run.decision(4).decided + 1


@unknown("exclusion", "decided before it began")
def clocks_loosened_by_a_log_that_runs_backwards(run: Run) -> None:
    run.processes(2)
    _displace(run)
    for decision in run.log:
        decision.started += 10_000 * MS
