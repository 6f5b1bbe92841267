"""Doctored runs that keep what is wrong out of sight of whoever would notice it."""

import gzip
import json

from harness.history import HISTORY_FILE, RESOURCE_FILE
from harness.history.rows import ROW_COLUMNS, SCHEMA, Fault
from tests.histories.doctored import MS, VALID_MS, Run, ok, unknown, violated
from tests.histories.doctored_attackers import _displace


def _everybody_displaced(run: Run) -> None:
    """Every second holder of "a" gets the lock while the one before it relies on it."""
    for first, second in ((0, 1), (3, 4), (6, 7)):
        row = run.rows[first]
        row.releasing = row.released = (row.granted or 0) + 90 * MS
        run.hold(second, 100 * first + 40)
    run.in_order()


def _refused(run: Run, number: int) -> None:
    """For a mark as high as its own fence, which nobody had shown."""
    run.refuse(number, number + 1)
    run.in_order()
    run.decision(number).seen = number + 1


# --- times ---


@unknown("holders", "no time passed")
def a_clock_that_stands_still(run: Run) -> None:
    _everybody_displaced(run)
    for row in run.rows:
        row.intended = row.dispatched = row.called = 100 * MS
        if row.granted is not None:
            row.granted = row.write_sent = row.write_done = row.releasing = row.released = 100 * MS
            row.valid_until = (100 + VALID_MS) * MS
    for decision in run.log:
        decision.started = decision.decided = 100 * MS


@unknown("holders", "no time passed")
def a_clock_that_steps_by_seconds(run: Run) -> None:
    for number in (0, 1, 3, 4, 6, 7, 2, 5):
        run.hold(number, 1000 * number)
    _displace(run)
    for row in run.rows:
        for name in ("intended", "dispatched", "called", "granted", "write_sent", "write_done", "releasing"):
            if getattr(row, name) is not None:
                setattr(row, name, getattr(row, name) // (1000 * MS) * 1000 * MS)
        row.released = row.releasing
    for decision in run.log:
        decision.started = decision.decided = decision.decided // (1000 * MS) * 1000 * MS


@unknown("holders", "whether it was too late")
def displaced_by_those_who_say_nothing_of_themselves(run: Run) -> None:
    _everybody_displaced(run)
    for number in (1, 4, 7):
        row = run.rows[number]
        row.called = row.valid_until = row.releasing = row.released = None
        row.outcome = "failed"


@unknown("holders", "whether that one's lease had ended")
def all_frozen_and_all_lost(run: Run) -> None:
    _everybody_displaced(run)
    for row in run.rows:
        if row.granted is not None:
            row.paused, row.outcome = True, "lost"


@violated("holders", "broke its promise")
def a_clock_that_began_long_before_the_run(run: Run) -> None:
    _displace(run)
    for row in run.rows:
        for name in ("called", "granted", "write_sent", "write_done", "releasing", "released", "valid_until"):
            if getattr(row, name) is not None:
                setattr(row, name, getattr(row, name) - 10**18)
    for decision in run.log:
        decision.started -= 10**18
        decision.decided -= 10**18


@violated("holders", "broke its promise")
def promises_without_end(run: Run) -> None:
    _displace(run)
    for row in run.rows:
        if row.granted is not None:
            row.valid_until = 10**30


# --- what the run says of itself ---


@unknown("completeness", "had 'one' processes")
def a_number_of_processes_in_words(run: Run) -> None:
    del run.rows[4]
    run.config["processes"] = "one"


@unknown("completeness", "had 0 processes")
def no_processes_at_all(run: Run) -> None:
    run.config["processes"] = 0


@unknown("holders", "nothing tells until when")
def a_time_to_live_that_is_no_number(run: Run) -> None:
    _everybody_displaced(run)
    run.config["ttl"] = "1"
    for row in run.rows:
        row.valid_until = row.releasing = row.released = None
        row.outcome = "failed" if row.granted is not None else row.outcome


@unknown("completeness", "another header")
def a_second_header_that_makes_a_semaphore_of_it(run: Run) -> None:
    _displace(run)
    for row in run.rows:
        row.shared = row.granted is not None
    header = {"schema": SCHEMA, "kind": "arrivals", "config": {"kind": "semaphore:9"}, "columns": ROW_COLUMNS}
    end = json.dumps({"end": 0})
    more = gzip.compress((json.dumps(header) + "\n" + end + "\n").encode(), mtime=0)
    run.config["kind"] = "exclusive"
    run.packed[HISTORY_FILE] = lambda data: data + more


@violated("stale_writes", "forgot its mark")
def a_second_log_that_begins_later(run: Run) -> None:
    _refused(run, 3)
    header = {"schema": SCHEMA, "kind": "resource", "config": {"after": 900}, "columns": ["seq"]}
    more = gzip.compress((json.dumps(header) + "\n" + json.dumps({"end": 0}) + "\n").encode(), mtime=0)
    run.packed[RESOURCE_FILE] = lambda data: data + more


@unknown("completeness", "says that it begins after 100")
def a_log_that_begins_behind_its_own_rows(run: Run) -> None:
    _refused(run, 7)
    run.log_config["after"] = 100


@unknown("lost_updates", "the log lacks")
def a_log_of_some_keys_that_are_all(run: Run) -> None:
    """It was cut down to some keys, and so its gap is none."""
    del run.log[3]
    run.rows[3].write, run.rows[3].outcome, run.rows[3].write_done = "unknown", "failed", None
    run.log_config["selected"] = "yes"


@unknown("readers_and_writers", "is a reader, but wrote")
def readers_that_write(run: Run) -> None:
    """Readers may hold the lock together; these all write."""
    run.config["kind"] = "shared:0.9"
    _displace(run)
    for row in run.rows[:-2]:
        row.shared = row.granted is not None


@unknown("holders", "says not how many")
def a_semaphore_without_a_number(run: Run) -> None:
    run.config["kind"] = "semaphore:many"
    _displace(run)
    for row in run.rows:
        row.shared = row.granted is not None


# --- the resource ---


@violated("agreement", "refused for no reason")
def refused_by_a_mark_that_nobody_set(run: Run) -> None:
    _refused(run, 3)


@violated("agreement", "has it as conflict")
def refused_and_called_a_conflict(run: Run) -> None:
    """Nobody asked for a version, and no fence was too low."""
    row, decision = run.rows[6], run.decision(6)
    row.write = row.outcome = "stale"
    decision.outcome = "conflict"
    run.in_order()
    row.seen = None


@unknown("stale_writes", "below 0")
def a_write_under_a_negative_number(run: Run) -> None:
    """The log numbers a holder's writes, and this one counts backwards."""
    run.decision(3).fence_seq = -1


@violated("holders", "broke its promise")
def an_accident_at_another_key(run: Run) -> None:
    _displace(run)
    run.faults.append(Fault("delete", 20 * MS, 60 * MS, {"frees": "b"}))


@violated("holders", "broke its promise")
def an_accident_that_is_one_by_its_name_only(run: Run) -> None:
    _displace(run)
    run.faults.append(Fault("flush", 20 * MS, None, {"frees": "yes", "forgets": 1}))


@violated("holders", "broke its promise")
def an_accident_that_ended_before_it_began(run: Run) -> None:
    _displace(run)
    run.faults.append(Fault("flush", 10**15, -(10**15), {"frees": True}))


@ok
def an_accident_after_the_run(run: Run) -> None:
    run.faults.append(Fault("flush", 10**15, None, {"frees": True, "forgets": True}))


@unknown("holders", "does not say who may")
def everybody_beside_others_in_a_run_of_no_kind(run: Run) -> None:
    _everybody_displaced(run)
    for row in run.rows:
        row.shared = row.granted is not None


@unknown("holders", "number below 0")
def an_arrival_below_the_first(run: Run) -> None:
    run.rows[8].id = -9


@violated("contents", "other bytes")
def an_owner_that_no_body_can_name(run: Run) -> None:
    """Half of a pair of surrogates is a string, but no text."""
    run.rows[3].owner = run.decision(3).owner = "\ud800"


@violated("holders", "broke its promise")
def a_time_beyond_all_measure(run: Run) -> None:
    _displace(run)
    run.rows[8].intended = 10**400
    run.rows[8].dispatched = run.rows[8].called = None
    run.rows[8].outcome = "abandoned"
    run.rows[2].intended = 10**400
