"""The benchmark's own histories are judged: what the checkers say of good and of spoilt ones."""

from array import array

import pytest

from bench.verdict import judge
from bench.work import Tally


def tally(granted: list[float], fences: list[int]) -> Tally:
    """A process whose sections were granted then, each after a wait of half a second."""
    waits = array("d", [0.5] * len(granted))
    return Tally([], waits, 1.0, 1.0, None, 0, array("q", fences), array("d", granted))


def test_processes_that_took_turns_are_in_order() -> None:
    assert judge([tally([1.0, 2.0, 5.0], [1, 2, 9]), tally([3.0, 4.0], [4, 6])]) == "ok"


@pytest.mark.parametrize(
    ("one", "other"),
    [([1, 2, 3], [4, 6]), ([1, 2, 4], [4, 6]), ([2, 1, 9], [4, 6])],
    ids=["an old holder came back", "a fence twice", "fences ran back"],
)
def test_processes_that_were_in_it_together_are_not(one: list[int], other: list[int]) -> None:
    assert judge([tally([1.0, 2.0, 5.0], one), tally([3.0, 4.0], other)]) == "violated"


def test_a_library_without_fences_is_not_judged() -> None:
    assert judge([Tally([1], array("d", [0.5]), 1.0, 1.0, None, 1)]) is None
