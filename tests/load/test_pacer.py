"""The pacer: arrival times as a pure sequence, no clock involved."""

import math
import statistics
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.load.pacer import NANOSECONDS, Course, offsets, share, staged


def test_arrival_i_of_a_constant_rate_is_due_at_i_over_rate() -> None:
    assert list(offsets(500, 0.01)) == [0, 2_000_000, 4_000_000, 6_000_000, 8_000_000]


@given(rate=st.floats(0.1, 1e5), duration=st.floats(0.001, 0.5))
def test_a_constant_rate_offers_rate_times_duration_in_order(rate: float, duration: float) -> None:
    due = list(offsets(rate, duration))
    assert abs(len(due) - math.ceil(rate * duration)) <= 1
    assert due == sorted(due)
    assert all(0 <= offset < duration * NANOSECONDS + 1 for offset in due)


def test_the_schedule_does_not_drift_over_hours() -> None:
    """Each offset is a product: after a million arrivals the error is still below a nanosecond."""
    due = next(islice(offsets(3, 1e9), 1_000_000, None))
    assert abs(due - 1_000_000 * NANOSECONDS / 3) <= 1


def test_the_sequence_is_lazy() -> None:
    """A year at a million a second starts at once and holds nothing."""
    assert list(islice(offsets(1e6, 365 * 86400), 3)) == [0, 1000, 2000]


def test_poisson_arrivals_have_exponential_gaps() -> None:
    due = list(offsets(1000, 30, arrivals="poisson", seed=7))
    gaps = [(b - a) / NANOSECONDS for a, b in pairwise(due)]
    assert len(due) == pytest.approx(30_000, rel=0.03)
    assert statistics.mean(gaps) == pytest.approx(0.001, rel=0.03)
    # The exponential distribution has its mean as standard deviation.
    assert statistics.stdev(gaps) == pytest.approx(0.001, rel=0.05)


def test_poisson_arrivals_repeat_with_their_seed_only() -> None:
    first = list(offsets(200, 1, arrivals="poisson", seed=1))
    assert list(offsets(200, 1, arrivals="poisson", seed=1)) == first
    assert list(offsets(200, 1, arrivals="poisson", seed=2)) != first


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_the_shares_of_all_processes_are_the_whole_schedule(arrivals: str, processes: int) -> None:
    """How many processes share a run does not change what arrives when."""
    whole = list(enumerate(offsets(300, 1, arrivals=arrivals, seed=5)))
    shares = [
        list(share(offsets(300, 1, arrivals=arrivals, seed=5), process, processes))
        for process in range(processes)
    ]
    assert sorted(arrival for part in shares for arrival in part) == whole
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="rate must be positive"):
        offsets(0, 1)
    with pytest.raises(ValueError, match="rate must be positive"):
        offsets(math.nan, 1)
    with pytest.raises(ValueError, match="constant or poisson"):
        offsets(1, 1, arrivals="bursty")


def test_stages_follow_each_other_at_their_own_rates() -> None:
    due = list(staged([(10, 1.0), (1000, 0.5), (20, 1.0)]))
    first = [offset for offset in due if offset < NANOSECONDS]
    second = [offset for offset in due if NANOSECONDS <= offset < 1.5 * NANOSECONDS]
    assert first == list(offsets(10, 1.0))
    assert second == [NANOSECONDS + offset for offset in offsets(1000, 0.5)]
    assert len(due) == 10 + 500 + 20
    assert due == sorted(due)


def test_one_stage_is_a_plain_run_and_stages_of_random_arrivals_differ() -> None:
    assert list(staged([(50, 2.0)], arrivals="poisson", seed=3)) == list(
        offsets(50, 2.0, arrivals="poisson", seed=3)
    )
    due = list(staged([(50, 2.0), (50, 2.0)], arrivals="poisson", seed=3))
    first = [offset for offset in due if offset < 2 * NANOSECONDS]
    assert first != [offset - 2 * NANOSECONDS for offset in due if offset >= 2 * NANOSECONDS]


def _told_before(course: Course, at: int) -> list[tuple[int, int]]:
    """Arrivals as a runner asks for them: the next one is known before it is due."""
    told = []
    for arrival in course:
        told.append(arrival)
        if arrival[1] >= at:
            break
    return told


@given(
    processes=st.integers(1, 5),
    rates=st.lists(st.sampled_from([0.0, 3.0, 50.0, 333.0]), min_size=2, max_size=4),
    arrivals=st.sampled_from(["constant", "poisson"]),
)
def test_a_schedule_that_is_exchanged_is_the_one_of_its_stages(
    processes: int, rates: list[float], arrivals: str
) -> None:
    """Whoever repeats a steered run by `--stages` gets the same arrivals with the same numbers."""
    seconds = 0.25
    whole = list(enumerate(staged([(rate, seconds) for rate in rates], arrivals=arrivals, seed=7)))
    found = []
    for process in range(processes):
        due = staged([(rates[0], seconds * len(rates))], arrivals=arrivals, seed=7)
        course = share(due, process, processes)
        told: list[tuple[int, int]] = []
        for stage, rate in enumerate(rates[1:], 1):
            at = round(stage * seconds * NANOSECONDS)
            if not told or told[-1][1] < at:
                told += _told_before(course, at)
            rest = [(0.0, stage * seconds), (rate, seconds * (len(rates) - stage))]
            if course.exchange(at, staged(rest, arrivals=arrivals, seed=7 + stage - 1)) and told:
                told = [arrival for arrival in told if arrival[1] < at]
                # The runner asks again, and knows the next one.
                told += [arrival for arrival in [next(course, None)] if arrival is not None]
        found += [*told, *course]
    assert sorted(found) == whole
