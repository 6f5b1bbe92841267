"""The protocols hold in every state of their models, and each bug that is put back breaks its invariant."""

import pytest

from tests.models import spin

pytestmark = pytest.mark.skipif(
    bool(spin.missing()),
    reason=f"{' and '.join(spin.missing())} not installed (Debian: spin, gcc)",
)

QUEUE, LEASE, FENCES = "redis_queue", "lease", "redlock_fences"
HAND_OFF = ("TASKS=2", "ATTEMPTS=1")
TWO_CLAIMS = ("TASKS=1", "ATTEMPTS=2", "RENEWALS=0")
KILLED = ("TASKS=1", "ATTEMPTS=1", "CUTS=0", "DEATHS=1")
FORGETFUL = ("TASKS=2", "ATTEMPTS=2", "CUTS=0", "LAPSES=0", "RENEWALS=0", "FORGETS=1")
BOTH_TWICE = ("TASKS=2", "ATTEMPTS=2", "CUTS=0", "RENEWALS=0")
ONE_EACH = ("TASKS=1", "ATTEMPTS=1", "RENEWALS=0")
SERVED = "everyone_is_served"


@pytest.mark.parametrize(
    ("model", "size", "at_least"),
    [
        pytest.param(QUEUE, HAND_OFF, 1_000_000, id="queue with hand-off, renewal, lapse and a cut"),
        pytest.param(QUEUE, TWO_CLAIMS, 100_000, id="queue with two claims of a session"),
        pytest.param(QUEUE, KILLED, 100_000, id="queue with a killed session"),
        pytest.param(QUEUE, FORGETFUL, 100_000, id="queue with a server that forgets"),
        pytest.param(LEASE, (), 1_000, id="lease and dead man's switch"),
        pytest.param(FENCES, (), 1_000, id="redlock's fences"),
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
    ],
)
def test_a_bug_that_is_put_back_breaks_its_invariant(
    model: str, size: tuple[str, ...], bug: str, broken: str
) -> None:
    checked = spin.check(model, *size, bug)
    assert checked.violated == broken
    assert f"{broken} = 0" in checked.trace, "the trace leads to the violation"


@pytest.mark.parametrize(("lapses", "bug"), [("LAPSES=0", "BUG_NO_LOOK"), ("LAPSES=1", "BUG_NO_REJOIN")])
def test_a_bug_that_is_put_back_leaves_a_waiter_waiting(lapses: str, bug: str) -> None:
    checked = spin.check(QUEUE, *ONE_EACH, lapses, bug, live=SERVED)
    assert checked.violated == SERVED
    assert "START OF CYCLE" in checked.trace
