"""The protocols hold in every state of their models, and each bug that is put back breaks its invariant."""

import pytest

from tests.models import spin

pytestmark = pytest.mark.skipif(
    bool(spin.missing()),
    reason=f"{' and '.join(spin.missing())} not installed (Debian: spin, gcc)",
)

QUEUE, LEASE, FENCES, SHARED = "redis_queue", "lease", "redlock_fences", "shared"
HAND_OFF = ("TASKS=2", "ATTEMPTS=1")
TWO_CLAIMS = ("TASKS=1", "ATTEMPTS=2", "RENEWALS=0")
KILLED = ("TASKS=1", "ATTEMPTS=1", "CUTS=0", "DEATHS=1")
FORGETFUL = ("TASKS=2", "ATTEMPTS=2", "CUTS=0", "LAPSES=0", "RENEWALS=0", "FORGETS=1")
BOTH_TWICE = ("TASKS=2", "ATTEMPTS=2", "CUTS=0", "RENEWALS=0")
ONE_EACH = ("TASKS=1", "ATTEMPTS=1", "RENEWALS=0")
SERVED = "everyone_is_served"
FOUR = ("WRITERS=2", "READERS=2", "ROUNDS=1", "CUTS=0")
THREE = ("WRITERS=1", "READERS=2", "ROUNDS=1")
FORCED = (*THREE, "CUTS=0", "FORCED=1")
DELETED = (*THREE, "CUTS=0", "DELETED=1")
BESIDE_READERS = ("WRITERS=1", "READERS=2", "LAPSES=0", "CUTS=0")
WRITER_SERVED = "writer_is_served"


@pytest.mark.parametrize(
    ("model", "size", "at_least"),
    [
        pytest.param(QUEUE, HAND_OFF, 1_000_000, id="queue with hand-off, renewal, lapse and a cut"),
        pytest.param(QUEUE, TWO_CLAIMS, 100_000, id="queue with two claims of a session"),
        pytest.param(QUEUE, KILLED, 100_000, id="queue with a killed session"),
        pytest.param(QUEUE, FORGETFUL, 100_000, id="queue with a server that forgets"),
        pytest.param(LEASE, (), 1_000, id="lease and dead man's switch"),
        pytest.param(FENCES, (), 1_000, id="redlock's fences"),
        pytest.param(SHARED, FOUR, 100_000, id="two readers and two writers, with a lapse"),
        pytest.param(SHARED, (*THREE, "CUTS=0", "DEATHS=1"), 100_000, id="readers and a writer, one killed"),
        pytest.param(SHARED, FORCED, 100_000, id="readers and a writer, one forced off"),
        pytest.param(SHARED, DELETED, 100_000, id="readers and a writer, with the lock deleted"),
    ],
)
def test_every_state_is_visited_and_the_invariants_hold(
    model: str, size: tuple[str, ...], at_least: int
) -> None:
    checked = spin.check(model, *size)
    assert checked.violated == "", checked.trace
    assert checked.states >= at_least


@pytest.mark.parametrize("lapses", ["LAPSES=0", "LAPSES=1"])
def test_every_waiter_is_served_in_every_fair_run(lapses: str) -> None:
    checked = spin.check(QUEUE, *ONE_EACH, lapses, live=SERVED)
    assert checked.violated == "", checked.trace


def test_a_writer_is_served_beside_readers_that_come_again_for_ever() -> None:
    checked = spin.check(SHARED, *BESIDE_READERS, live=WRITER_SERVED)
    assert checked.violated == "", checked.trace


@pytest.mark.parametrize(
    ("model", "size", "bug", "broken"),
    [
        (QUEUE, HAND_OFF, "BUG_LATE_GRANT", "one_holder"),
        (QUEUE, HAND_OFF, "BUG_GIVE_BACK_ANY", "one_holder"),
        (QUEUE, BOTH_TWICE, "BUG_RELEASE_ANY", "one_holder"),
        (QUEUE, HAND_OFF, "BUG_ONE_FENCE", "fences_rise"),
        (QUEUE, HAND_OFF, "BUG_HAND_ON_LAPSED", "fences_rise"),
        (QUEUE, FORGETFUL, "BUG_NO_FENCE_MEMORY", "fences_rise"),
        (QUEUE, HAND_OFF, "BUG_REVIVE", "unbroken"),
        (QUEUE, HAND_OFF, "BUG_NO_GUARD", "resource_forward"),
        (LEASE, (), "BUG_FROM_REPLY", "covered"),
        (LEASE, (), "BUG_SILENCE_RENEWS", "covered"),
        (LEASE, (), "BUG_NO_SWITCH", "ended_in_time"),
        (FENCES, (), "BUG_NO_WRITE_BACK", "fences_rise"),
        (FENCES, (), "FORGETS=1", "fences_rise"),
        (SHARED, FOUR, "BUG_LAST_AND_FIRST", "writer_alone"),
        (SHARED, FOUR, "BUG_SILENT_LEAVE", "readers_together"),
        (SHARED, FOUR, "BUG_READERS_WITHOUT_FENCE", "fences_ordered"),
        (SHARED, DELETED, "BUG_OLD_HOLDERS", "unbroken"),
        (SHARED, FOUR, "BUG_NO_GUARD", "resource_forward"),
        (SHARED, FOUR, "TWO_READERS", "readers_apart"),
    ],
)
def test_a_bug_that_is_put_back_breaks_its_invariant(
    model: str, size: tuple[str, ...], bug: str, broken: str
) -> None:
    checked = spin.check(model, *size, bug)
    assert checked.violated == broken
    assert f"{broken} = 0" in checked.trace, "the trace leads to the violation"


@pytest.mark.parametrize(
    ("model", "size", "bug", "served"),
    [
        (QUEUE, (*ONE_EACH, "LAPSES=0"), "BUG_NO_LOOK", SERVED),
        (QUEUE, (*ONE_EACH, "LAPSES=1"), "BUG_NO_REJOIN", SERVED),
        (SHARED, BESIDE_READERS, "BUG_BARGE", WRITER_SERVED),
    ],
)
def test_a_bug_that_is_put_back_leaves_a_waiter_waiting(
    model: str, size: tuple[str, ...], bug: str, served: str
) -> None:
    checked = spin.check(model, *size, bug, live=served)
    assert checked.violated == served
    assert "START OF CYCLE" in checked.trace
