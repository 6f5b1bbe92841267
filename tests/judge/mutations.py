"""Ways to change a history: some must not save a bad one, others must condemn a good one."""

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import combinations

from harness.history import Decision, History, Row, Value

ROW_TIMES = (
    *("intended", "dispatched", "called", "granted", "write_sent", "write_done", "releasing", "released"),
    "valid_until",
)

Harmless = Callable[[History], None]


def shuffled(history: History) -> None:
    """Rows are recorded in any order."""
    random.Random(5).shuffle(history.rows)


def shifted(history: History) -> None:
    """The run began at another time."""
    for row in history.rows:
        _map_times(row, lambda time: time + 1_000_000)
    for decision in history.log or ():
        decision.started += 1_000_000
        decision.decided += 1_000_000


def stretched(history: History) -> None:
    """Everything took longer."""
    for row in history.rows:
        _map_times(row, lambda time: time * 977)
    for decision in history.log or ():
        decision.started *= 977
        decision.decided *= 977


def renamed(history: History) -> None:
    """Other keys, as awkward as they may be."""

    def other(key: str) -> str:
        return f"{{{key}}}],[\n{{0}} ☃"

    for item in [*history.rows, *(history.log or ())]:
        item.key = other(item.key)
    history.values = {
        other(key): Value(other(key), value.version, value.digest) for key, value in history.values.items()
    }


def sparse_fences(history: History) -> None:
    """The lock skips fences, as etcd's revisions do."""
    for row in history.rows:
        row.fence = row.fence and 3 * row.fence + 1000
        row.seen = row.seen and 3 * row.seen + 1000
    for decision in history.log or ():
        decision.token = decision.token and 3 * decision.token + 1000
        decision.seen = decision.seen and 3 * decision.seen + 1000


def without_faults(history: History) -> None:
    """Nobody tells what was broken on purpose."""
    history.faults.clear()


def without_versions(history: History) -> None:
    """A resource that counts no versions."""
    for decision in history.log or ():
        decision.version = None


def amid_traffic(history: History) -> None:
    """A thousand well-behaved arrivals on other keys, before, during and after."""
    well_behaved = well_behaved_history(1000, keys=7)
    _append(history, well_behaved, prefix="busy-")


def twice(history: History) -> None:
    """The same again on another key."""
    _append(history, deepcopy(history), prefix="again-")


HARMLESS: list[Harmless] = [
    shuffled,
    shifted,
    stretched,
    renamed,
    sparse_fences,
    without_faults,
    without_versions,
    amid_traffic,
    twice,
]


def well_behaved_history(arrivals: int, *, keys: int) -> History:
    """One holder after the other on each key."""
    rows = []
    log = []
    for number in range(arrivals):
        key, fence = f"key-{number % keys}", number // keys + 1
        at = 100 * number
        row = Row(number, 0, number % 10, key, at, at, at, at + 10, at + 20, at + 40, at + 50)
        row.owner, row.fence, row.outcome, row.write = f"owner-{number}", fence, "ok", "accepted"
        rows.append(row)
        log.append(
            Decision(key, number + 1, fence, 0, "accepted", fence - 1, fence, at + 25, at + 30, row.owner)
        )
    return History(rows, log)


def _append(history: History, other: History, *, prefix: str) -> None:
    next_id = max(row.id for row in history.rows) + 1
    for row in other.rows:
        row.id += next_id
        row.key = prefix + row.key
        row.owner = row.owner and prefix + row.owner
    history.rows += other.rows
    if history.log is not None:
        for decision in other.log or ():
            decision.key = prefix + decision.key
            decision.owner = decision.owner and prefix + decision.owner
        # Merged by time, each log keeping its own order.
        merged = sorted([*history.log, *(other.log or ())], key=lambda decision: decision.decided)
        first = min((decision.seq for decision in history.log), default=1)
        for seq, decision in enumerate(merged, first):
            decision.seq = seq
        history.log[:] = merged


def _map_times(row: Row, change: Callable[[int], int]) -> None:
    for name in ROW_TIMES:
        time = getattr(row, name)
        if time is not None:
            setattr(row, name, change(time))


# Mutations that make a good history bad: each yields a changed copy for every place where it applies,
# and names the checks of which at least one must say so.


def _pairs(history: History) -> Iterator[tuple[History, Row, Row]]:
    """Copies with two grants of a key of which the first was in hand before the second was called."""
    for one, other in combinations(range(len(history.rows)), 2):
        copy = deepcopy(history)
        early, late = copy.rows[one], copy.rows[other]
        if late.granted is not None and early.called is not None and late.granted < early.called:
            early, late = late, early
        if None not in (early.fence, late.fence, early.granted, late.called) and early.key == late.key:
            assert early.granted is not None and late.called is not None
            if early.granted < late.called:
                yield copy, early, late


def fences_swapped(history: History) -> Iterator[History]:
    for copy, early, late in _pairs(history):
        early.fence, late.fence = late.fence, early.fence
        yield copy


def fence_repeated(history: History) -> Iterator[History]:
    for copy, early, late in _pairs(history):
        late.fence = early.fence
        yield copy


def refusal_dropped(history: History) -> Iterator[History]:
    """The resource accepts what it refused."""
    for copy, decision in _decisions(history, "stale"):
        decision.outcome = "accepted"
        yield copy


def acceptance_reversed(history: History) -> Iterator[History]:
    """The resource's log has an acknowledged write as refused."""
    for copy, decision in _acknowledged(history):
        decision.outcome = "stale"
        yield copy


def decision_dropped(history: History) -> Iterator[History]:
    """An acknowledged write, and not the log's first (which might have been dropped for its age)."""
    for copy, decision in _acknowledged(history):
        assert copy.log is not None
        if decision is not copy.log[0]:
            copy.log.remove(decision)
            yield copy


def decision_repeated(history: History) -> Iterator[History]:
    for copy, decision in _decisions(history, "accepted"):
        assert copy.log is not None
        again = deepcopy(decision)
        again.seq = copy.log[-1].seq + 1
        again.started = again.decided = copy.log[-1].decided
        copy.log.append(again)
        yield copy


def writes_swapped(history: History) -> Iterator[History]:
    """The resource decides two holders' writes the other way round."""
    assert history.log is not None
    for one, other in combinations(range(len(history.log)), 2):
        copy = deepcopy(history)
        assert copy.log is not None
        early, late = copy.log[one], copy.log[other]
        if early.key == late.key and early.outcome == late.outcome == "accepted" and early.token < late.token:
            for name in ("token", "fence_seq", "owner", "digest"):
                before = getattr(early, name)
                setattr(early, name, getattr(late, name))
                setattr(late, name, before)
            yield copy


def mark_lowered(history: History) -> Iterator[History]:
    """The resource forgets the highest fence that it has seen."""
    for outcome in ("accepted", "stale"):
        for copy, decision in _decisions(history, outcome):
            if decision.seen:
                decision.seen -= 1
                yield copy


def acknowledged_elsewhere(history: History) -> Iterator[History]:
    """A client believes that it wrote under a fence that the log does not know."""
    for index, row in enumerate(history.rows):
        if row.write == "accepted" and row.fence is not None:
            copy = deepcopy(history)
            copy.rows[index].fence = 1_000_000
            yield copy


def written_by_another(history: History) -> Iterator[History]:
    """The log has the write under this fence, but from somebody else."""
    for copy, decision in _acknowledged(history):
        decision.owner = "somebody else"
        yield copy


def recorded_twice(history: History) -> Iterator[History]:
    for row in history.rows:
        copy = deepcopy(history)
        copy.rows.append(deepcopy(row))
        yield copy


def granted_before_called(history: History) -> Iterator[History]:
    for index, row in enumerate(history.rows):
        if row.granted is not None and row.called is not None:
            copy = deepcopy(history)
            copy.rows[index].granted, copy.rows[index].called = row.called, row.granted
            yield copy


def released_before_granted(history: History) -> Iterator[History]:
    for index, row in enumerate(history.rows):
        if row.granted is not None and row.released is not None:
            copy = deepcopy(history)
            copy.rows[index].released = row.granted - 1
            yield copy


def grant_forgotten(history: History) -> Iterator[History]:
    for index, row in enumerate(history.rows):
        if row.granted is not None:
            copy = deepcopy(history)
            copy.rows[index].granted = None
            yield copy


def sending_forgotten(history: History) -> Iterator[History]:
    for index, row in enumerate(history.rows):
        if row.write in ("accepted", "stale", "unknown"):
            copy = deepcopy(history)
            copy.rows[index].write_sent = None
            yield copy


def owner_shared(history: History) -> Iterator[History]:
    """Two arrivals under one owner, the second of which wrote nothing that could contradict it."""
    for row in history.rows:
        if row.owner is not None:
            copy = deepcopy(history)
            copy.rows.append(Row(10_000, 0, 0, row.key, 0, owner=row.owner))
            yield copy


def number_repeated(history: History) -> Iterator[History]:
    """Two decisions under one number of the log."""
    if history.log:
        copy = deepcopy(history)
        copy.rows.append(Row(10_000, 0, 0, "elsewhere", 0, owner="one more"))
        assert copy.log is not None
        again = Decision("elsewhere", copy.log[-1].seq, 0, outcome="conflict", owner="one more")
        again.started = again.decided = copy.log[-1].decided
        copy.log.append(again)
        yield copy


def log_withheld(history: History) -> Iterator[History]:
    copy = deepcopy(history)
    copy.log = None
    yield copy


def _decisions(history: History, outcome: str) -> Iterator[tuple[History, Decision]]:
    for index, decision in enumerate(history.log or ()):
        if decision.outcome == outcome:
            copy = deepcopy(history)
            assert copy.log is not None
            yield copy, copy.log[index]


def _acknowledged(history: History) -> Iterator[tuple[History, Decision]]:
    """Accepted decisions of a holder who was told so, and who wrote once."""
    told = {row.owner for row in history.rows if row.write == "accepted"}
    tokens = [(decision.key, decision.token) for decision in history.log or ()]
    for copy, decision in _decisions(history, "accepted"):
        if decision.owner in told and tokens.count((decision.key, decision.token)) == 1:
            yield copy, decision


def holds_overlapped(history: History) -> Iterator[History]:
    """A holder got the lock while another, who was not frozen, still had it."""
    for copy, early, late in _pairs(history):
        if early.outcome == late.outcome == "ok" and not early.paused and early.write_done is not None:
            late.called, late.granted = early.granted, early.write_done - 1
            yield copy


def value_changed(history: History) -> Iterator[History]:
    """The resource holds something else in the end than what was written last."""
    keys = {decision.key for decision in history.log or () if decision.accepted}
    for key in keys:
        copy = deepcopy(history)
        last = [decision for decision in copy.log or () if decision.accepted and decision.key == key][-1]
        last.digest = "aa"
        copy.values[key] = Value(key, last.version or 0, "bb")
        yield copy


HARMFUL: dict[Callable[[History], Iterator[History]], set[str]] = {
    fences_swapped: {"fence_order"},
    fence_repeated: {"fence_order"},
    refusal_dropped: {"exclusion", "stale_writes"},
    acceptance_reversed: {"lost_updates"},
    decision_dropped: {"lost_updates"},
    decision_repeated: {"lost_updates"},
    writes_swapped: {"exclusion"},
    mark_lowered: {"stale_writes", "agreement"},
    acknowledged_elsewhere: {"lost_updates"},
    written_by_another: {"lost_updates"},
    holds_overlapped: {"holders"},
    value_changed: {"contents"},
}
"""Mutation -> the checks that must find it, one of them at least."""


def cut_off(history: History) -> Iterator[History]:
    copy = deepcopy(history)
    copy.complete = False
    yield copy


def log_with_a_gap(history: History) -> Iterator[History]:
    for index in range(1, len(history.log or ())):
        copy = deepcopy(history)
        for decision in (copy.log or [])[index:]:
            decision.seq += 1
        yield copy


def decided_at_another_time(history: History) -> Iterator[History]:
    """The last decision was made long after its client had the answer."""
    if history.log and len(history.log) > 1 and history.log[-1].outcome == "accepted":
        copy = deepcopy(history)
        assert copy.log is not None
        copy.log[-1].started += 10**9
        copy.log[-1].decided += 10**9
        if any(row.owner == copy.log[-1].owner and row.write == "accepted" for row in copy.rows):
            yield copy


CONFUSING = [
    cut_off,
    log_with_a_gap,
    decided_at_another_time,
    recorded_twice,
    granted_before_called,
    released_before_granted,
    grant_forgotten,
    sending_forgotten,
    owner_shared,
    number_repeated,
    log_withheld,
]
"""Mutations after which a history says nothing reliable."""
