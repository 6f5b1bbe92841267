"""From what processes recorded to the figures of a table."""

from array import array

import pytest

from bench.figures import figures, medians
from bench.work import Tally


def tally(granted: list[float], waits: list[float]) -> Tally:
    return Tally([len(waits)], array("d", waits), 1.0, 1.0, None, len(waits), granted=array("d", granted))


def overtaken(*tallies: Tally, hot: bool = True) -> float | None:
    return figures(tallies, hot=hot, server_cpu=0.0, server_commands=0).overtaken


def test_sections_in_the_order_of_their_calls_overtake_nobody() -> None:
    assert overtaken(tally([1.0, 3.0], [0.5, 0.5]), tally([2.0], [1.0])) == 0.0


def test_sections_that_began_after_later_calls_are_counted_over_all_processes() -> None:
    assert overtaken(tally([1.0, 3.0], [0.5, 2.9]), tally([2.0, 4.0], [0.5, 3.5])) == 0.5


def test_where_nobody_competes_or_nothing_was_noted_it_is_not_known() -> None:
    assert overtaken(tally([1.0, 2.0], [0.1, 0.9]), hot=False) is None
    assert overtaken(tally([], [0.1, 0.9])) is None


@pytest.mark.parametrize(
    ("second", "worst"),
    [(tally([1.0, 2.0], [0.1, 1.5]), 0.5), (tally([], [0.1]), 0.0)],
    ids=["out of order", "unknown"],
)
def test_of_several_rounds_the_worst_counts(second: Tally, worst: float) -> None:
    first = tally([1.0, 2.0], [0.1, 0.1])
    rounds = [figures([one], hot=True, server_cpu=0.0, server_commands=0) for one in (first, second)]
    assert medians(rounds)["overtaken"] == worst
