"""The protocols as people read them: they hold in every state, and a bug put back breaks its invariant."""

from collections.abc import Mapping, Sequence

import pytest

from tests.models import tla
from tests.models.spin import Checked

pytestmark = pytest.mark.skipif(bool(tla.missing()), reason=tla.missing())

QUEUE = ("RedisQueue", {"Sessions": '{"a", "b"}', "Claims": "2", "Lapses": "1", "Losses": "1"})
LEASE = ("Lease", {"Ttl": "4", "Valid": "3", "Horizon": "12"})
FENCES = ("RedlockFences", {"Nodes": '{"a", "b", "c"}', "Rounds": "5"})
INVARIANTS: Mapping[str, Sequence[str]] = {
    "RedisQueue": ("OneHolder", "FencesRise", "ResourceForward", "Covered"),
    "Lease": ("Covered", "EndedInTime"),
    "RedlockFences": ("FencesRise",),
}


def checked(model: tuple[str, Mapping[str, str]], bug: str, *invariants: str) -> Checked:
    module, constants = model
    return tla.check(module, {**constants, "Bug": f'"{bug}"'}, invariants or INVARIANTS[module])


@pytest.mark.parametrize(("model", "at_least"), [(QUEUE, 2_000), (LEASE, 10_000), (FENCES, 300)])
def test_every_state_is_visited_and_the_invariants_hold(
    model: tuple[str, Mapping[str, str]], at_least: int
) -> None:
    found = checked(model, "none")
    assert found.violated == "", found.trace
    assert found.states >= at_least


@pytest.mark.parametrize(
    ("model", "bug", "broken"),
    [
        (QUEUE, "LateGrant", "OneHolder"),
        (QUEUE, "ReleaseAny", "OneHolder"),
        (QUEUE, "RenewAny", "OneHolder"),
        (QUEUE, "CounterStandsStill", "FencesRise"),
        (QUEUE, "NoGuard", "ResourceForward"),
        (LEASE, "FromReply", "Covered"),
        (LEASE, "SilenceRenews", "Covered"),
        (LEASE, "NoSwitch", "EndedInTime"),
        (FENCES, "NoWriteBack", "FencesRise"),
    ],
)
def test_a_bug_that_is_put_back_breaks_its_invariant(
    model: tuple[str, Mapping[str, str]], bug: str, broken: str
) -> None:
    found = checked(model, bug, broken)
    assert found.violated == broken
    assert found.trace, "there is a trace that leads to the violation"
