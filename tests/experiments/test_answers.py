"""An answer says no more than was observed: doctored cases read otherwise than real ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from harness.experiments import (
    clock_drift,
    failover,
    fence_depth,
    redlock_partition,
    reentrancy,
    ttl_liveness,
    unsafe_release,
)
from harness.experiments.fence_depth import KEEPS, LOSES
from harness.lab.outcome import Case, Conclusion, Fact, answer

Conclude = Callable[[Sequence[Case]], str]


def case(name: str, expected: str, **facts: Fact) -> Case:
    return Case(name=name, expected=expected, observed=expected, facts=facts)


def both(name: str) -> list[Case]:
    return [case(f"{name}, fence off", "violated"), case(f"{name}, fence on", "ok")]


REDLOCK = [
    *both("partition, A frozen after the check"),
    *both("clock of a node jumps"),
    case("A frozen before the check, fence off", "ok"),
    case("node forgets a high counter, fence on", "ok"),
]
CLOCKS = [*both("3 of 5 clocks × 2"), case("2 of 5 clocks × 2, fence off", "ok")]
RELEASES = [
    *(replace(one, facts={"B's lock survived": False}) for one in both("GET then DEL")),
    case("one script, fence off", "ok", **{"B's lock survived": True}),
]
FAILOVER = [*both("grant not replicated"), case("etcd leader killed, fence off", "ok")]
REENTRANCY = [
    case(f"{lock}, {reentrancy.EXPIRED}, fence off", verdict)
    for lock, verdict in ((reentrancy.RECIPE, "violated"), (reentrancy.OURS, "ok"))
]
DEPTH = [
    case(f"writes only, {order}", LOSES, lost=1, acknowledged=2, **{"share, 95 %": "50 %"})
    for order in ("older writes first", "at random")
] + [case("every operation, older writes first", KEEPS)]
LIVENESS = [
    case("redis, TTL 2 s", "ok", **{"in TTLs": "0.80"}),
    case("redis, slow holder", "ok", **{"slow holder was told": "409 seen 2 got 1"}),
]

ANSWERS: list[tuple[Conclude, list[Case], str]] = [
    (redlock_partition.conclude, REDLOCK, "No."),
    (clock_drift.conclude, CLOCKS, "by a clock that was right"),
    (unsafe_release.conclude, RELEASES, "With GET and DEL, B's."),
    (failover.conclude, FAILOVER, "Two hold it"),
    (reentrancy.conclude, REENTRANCY, "No."),
    (fence_depth.conclude, DEPTH, "The fence of writes alone misses"),
    (ttl_liveness.conclude, LIVENESS, "That is what was left of the lease"),
]
IDS = [conclude.__module__.rpartition(".")[2] for conclude, _, _ in ANSWERS]


def doctored(cases: Sequence[Case], observed: str) -> list[Case]:
    """As if the faults had broken nothing where they were to, or as if nothing had worked."""
    if observed != "the opposite":
        return [replace(one, observed=observed) for one in cases]
    opposite = {"violated": "ok", LOSES: KEEPS}
    if not any(one.expected in opposite for one in cases):
        return [replace(one, observed="violated") for one in cases]
    return [replace(one, observed=opposite.get(one.expected, one.observed)) for one in cases]


@pytest.mark.parametrize(("conclude", "cases", "claim"), ANSWERS, ids=IDS)
def test_what_came_out_as_predicted_is_claimed(conclude: Conclude, cases: list[Case], claim: str) -> None:
    told = conclude(cases)
    assert claim in told
    assert "predicted" not in told


@pytest.mark.parametrize("observed", ["the opposite", "otherwise", "not shown", "failed"])
@pytest.mark.parametrize(("conclude", "cases", "claim"), ANSWERS, ids=IDS)
def test_what_came_out_otherwise_is_not_claimed(
    conclude: Conclude, cases: list[Case], claim: str, observed: str
) -> None:
    wrong = doctored(cases, observed)
    told = conclude(wrong)
    assert claim not in told
    deviating = [one for one in wrong if not one.as_predicted]
    assert deviating
    for one in deviating:
        assert f"- {one.name}: expected {one.expected}, observed {one.observed}" in told


def test_redlock_that_kept_everybody_out_is_said_to_have_done_so() -> None:
    told = redlock_partition.conclude([replace(one, observed="ok") for one in REDLOCK])
    assert "No." not in told
    assert "In these runs it did." in told
    assert "0 of 2 cases in which the lock was to fail" in told


@pytest.mark.parametrize("observed", ["not shown", "failed"])
def test_redlock_is_not_said_to_have_kept_out_whom_nobody_let_try(observed: str) -> None:
    told = redlock_partition.conclude([replace(one, observed=observed) for one in REDLOCK])
    assert "No." not in told
    assert "it did" not in told


def test_one_deviation_takes_back_only_what_rests_on_it() -> None:
    cases = [replace(one, observed="ok") if "clock" in one.name else one for one in REDLOCK]
    told = redlock_partition.conclude(cases)
    assert told.count("expected violated, observed ok") == 1
    assert "as Sanfilippo says" in told
    assert "The clock and the restart need no pause" not in told


def test_a_claim_needs_a_case_that_ran() -> None:
    skipped = case("a", "skipped")
    assert answer(Conclusion("It holds.", [])) == "Nothing could be run."
    assert answer(Conclusion("It holds.", [replace(skipped, expected="ok")])) == "Nothing could be run."
    assert answer("Counted.", Conclusion("It holds.", [case("b", "ok")])) == "Counted.\n\nIt holds."
