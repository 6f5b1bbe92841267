"""Whether a run's figures can be believed is judged by absolute bounds, whatever latency it measured."""

import pytest

from harness.history.distribution import Distribution
from harness.judge.trust import Hindrance, doubts

MS = 1_000_000


def lag(*groups: tuple[int, float]) -> Distribution:
    """So many arrivals so many milliseconds late, and so on."""
    return Distribution([round(late * MS) for count, late in groups for _ in range(count)])


@pytest.mark.parametrize(
    ("late", "complaint"),
    [
        (lag((10_000, 1)), None),
        (lag((9_850, 1), (150, 24)), None),
        (lag((9_850, 1), (150, 26)), "late at the p99,"),
        (lag((9_980, 1), (20, 90)), None),
        (lag((9_980, 1), (20, 110)), "late at the p99.9"),
        (lag((9_999, 1), (1, 2000)), "2 s late at worst"),
        (lag((9_999, 1), (1, 499)), None),
        (lag((590, 1), (10, 110)), "late at the p99,"),
        (lag((59, 1), (1, 50)), None),
        (lag((50, 1), (10, 50)), "late at the p90"),
        (lag((59, 1), (1, 1500)), "1.5 s late at worst"),
        (lag(), None),
    ],
)
def test_lateness_is_held_against_absolute_bounds(late: Distribution, complaint: str | None) -> None:
    found = doubts(late)
    if complaint is None:
        assert found == []
    else:
        (said,) = found
        assert complaint in said


@pytest.mark.parametrize(
    ("hindrance", "complaint"),
    [
        (Hindrance(stalled=0.09, collected=0.09, run_delay=0.49), None),
        (Hindrance(stalled=0.11), "stood still for 11% of the run"),
        (Hindrance(collected=0.3, longest_collection=0.5), "30% of the run, 500 ms at once"),
        (Hindrance(run_delay=0.6), "waited for a processor for 60%"),
    ],
)
def test_what_kept_the_generator_from_its_work_is_a_reason(hindrance: Hindrance, complaint: str) -> None:
    found = doubts(lag((1000, 1)), hindrance=hindrance)
    assert (found == []) if complaint is None else (complaint in found[0])


def test_dropped_arrivals_and_failures_are_reasons() -> None:
    assert "dropped" in doubts(lag(), dropped=3)[0]
    assert doubts(lag(), failures=["it died"]) == ["it died"]
