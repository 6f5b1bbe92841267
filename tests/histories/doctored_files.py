"""Doctored files: cut off, damaged, miscounted, or with values that no run records."""

from collections.abc import Callable
from typing import Any

from harness.history import HISTORY_FILE, RESOURCE_FILE, Fault
from tests.histories.doctored import MS, Run, ok, unknown

BOTH = {"history": HISTORY_FILE, "log": RESOURCE_FILE}


def _named(name: str) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    def rename(change: Callable[[Run], None]) -> Callable[[Run], None]:
        change.__name__ = name
        return change

    return rename


def _of_each_file(kind: str, file: str) -> None:
    @unknown("completeness", "has no end mark")
    @_named(f"{kind}_has_no_end")
    def no_end(run: Run) -> None:
        run.ends[file] = None

    for name, by in (("too_many", 1), ("too_few", -1)):

        @unknown("completeness", "its end mark says")
        @_named(f"{kind}_counts_{name}")
        def wrong_count(run: Run, by: int = by) -> None:
            run.ends[file] = len(run.rows if file == HISTORY_FILE else run.log) + by

    @unknown("completeness", "its end mark says")
    @_named(f"{kind}_counts_in_words")
    def words(run: Run) -> None:
        run.ends[file] = "eight"

    @unknown("completeness", "goes on after its end mark")
    @_named(f"{kind}_goes_on_after_its_end")
    def goes_on(run: Run) -> None:
        run.after_the_end[file] = 2

    for share in (0.5, 0.9):

        @unknown("completeness", "breaks off")
        @_named(f"{kind}_is_cut_off_at_{share:.0%}")
        def cut_off(run: Run, share: float = share) -> None:
            run.packed[file] = lambda data: data[: int(len(data) * share)]

    @unknown("completeness", "breaks off")
    @_named(f"{kind}_has_no_checksum")
    def no_checksum(run: Run) -> None:
        run.packed[file] = lambda data: data[:-8]

    @unknown("completeness", "is corrupt")
    @_named(f"{kind}_has_a_wrong_checksum")
    def wrong_checksum(run: Run) -> None:
        run.packed[file] = lambda data: data[:-8] + bytes(4) + data[-4:]


for _kind, _file in BOTH.items():
    _of_each_file(_kind, _file)


def _row_with(name: str, column: str, value: Any, finding: str) -> None:
    @unknown("completeness", finding)
    @_named(f"arrival_with_{name}")
    def row_with(run: Run) -> None:
        setattr(run.rows[3], column, value)


def _decision_with(name: str, column: str, value: Any, finding: str) -> None:
    @unknown("completeness", finding)
    @_named(f"decision_with_{name}")
    def decision_with(run: Run) -> None:
        setattr(run.log[3], column, value)


NAN = float("nan")

_row_with("a_fence_that_is_not_a_number", "fence", NAN, "its fence is nan")
_row_with("a_fence_in_words", "fence", "4", "its fence is '4'")
_row_with("a_fence_that_is_true", "fence", True, "its fence is True")
_row_with("a_fence_with_a_fraction", "fence", 4.5, "its fence is 4.5")
_row_with("a_grant_at_no_number", "granted", NAN, "its granted is nan")
_row_with("a_grant_at_infinity", "granted", float("inf"), "its granted is inf")
_row_with("a_call_in_words", "called", "soon", "its called is 'soon'")
_row_with("a_list_for_a_key", "key", ["a"], "its key is ['a']")
_row_with("no_key", "key", None, "its key is None")
_row_with("an_unknown_outcome", "outcome", "splendid", "its outcome is 'splendid'")
_row_with("an_unknown_kind_of_write", "write", "maybe", "its write is 'maybe'")
_row_with("a_validity_in_words", "valid_until", "ever", "its valid_until is 'ever'")
_decision_with("a_token_that_is_not_a_number", "token", NAN, "its token is nan")
_decision_with("a_token_in_words", "token", "4", "its token is '4'")
_decision_with("a_number_in_words", "seq", "4", "its seq is '4'")
_decision_with("a_time_that_is_not_a_number", "decided", NAN, "its decided is nan")
_decision_with("a_time_in_words", "started", "soon", "its started is 'soon'")
_decision_with("an_unknown_outcome", "outcome", "splendid", "its outcome is 'splendid'")


def _contradiction(name: str, finding: str, **changes: Any) -> None:
    @unknown("exclusion", finding)
    @_named(f"arrival_that_{name}")
    def contradiction(run: Run) -> None:
        for column, value in changes.items():
            setattr(run.rows[3], column, value)


_contradiction("ended_well_but_was_refused", "contradicts itself", write="stale")
_contradiction("ended_well_but_was_not_answered", "contradicts itself", write="unknown", write_done=None)
_contradiction("was_refused_but_wrote", "contradicts itself", outcome="stale")
_contradiction("timed_out_but_wrote", "contradicts itself", outcome="timed_out")
_contradiction("timed_out_but_was_granted", "timed out although", outcome="timed_out", write="none")
_contradiction("was_answered_at_no_time", "at no time", write_done=None)
_contradiction("was_granted_before_it_called", "run backwards", called=900 * MS)
_contradiction("released_before_it_wrote", "run backwards", releasing=1)
_contradiction("is_recorded_twice", "is recorded twice", id=4)
_contradiction("shares_its_owner", "shares its owner", owner="owner-4")


@unknown("completeness", "arrivals of process 0 are not recorded")
def arrivals_are_missing(run: Run) -> None:
    del run.rows[2:4]
    run.log[:] = [decision for decision in run.log if decision.owner not in ("owner-2", "owner-3")]
    run.in_order()


@unknown("completeness", "process 1 recorded nothing")
def a_process_is_missing(run: Run) -> None:
    run.processes(2)
    run.rows[:] = [row for row in run.rows if row.process == 0]
    run.log[:] = [decision for decision in run.log if decision.token % 2]
    run.in_order()


@unknown("completeness", "which is no number")
def the_log_begins_after_words(run: Run) -> None:
    run.log_config["after"] = "breakfast"
    run.in_order = lambda: None  # type: ignore[method-assign]


@ok
def a_newer_version_added_a_field(run: Run) -> None:
    run.header["colour"] = "blue"


@ok
def one_process_was_interrupted_later_than_the_other(run: Run) -> None:
    run.processes(2)
    run.rows[8].id = 10
    run.rows[8].process = 0
    run.rows.append(type(run.rows[8])(8, 0, 8, "a", 800 * MS, outcome="abandoned"))


@unknown("completeness", "says that it is of process 5")
def a_process_that_the_run_does_not_have(run: Run) -> None:
    run.rows[3].process = 5


@unknown("completeness", "process")
def a_billion_processes(run: Run) -> None:
    run.config["processes"] = 10**9


@unknown("holders", "times that run backwards")
def released_before_it_began_to_release(run: Run) -> None:
    run.rows[0].releasing = 90 * MS
    run.hold(1, 40)
    run.in_order()


@unknown("completeness", "its at is")
def an_accident_at_no_time(run: Run) -> None:
    run.faults.append(Fault("flush", float("nan"), None, {"frees": True}))  # type: ignore[arg-type]


@unknown("completeness", "end mark says")
def an_end_mark_that_is_no_number(run: Run) -> None:
    run.ends["history.jsonl.gz"] = 9.0
