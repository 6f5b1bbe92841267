"""Intervals that hold as often as they claim, and comparisons that know when they cannot tell."""

import random
from dataclasses import replace

import pytest

from harness.history.distribution import Distribution
from harness.judge.comparison import compare_runs
from harness.judge.statistics import (
    compare_intervals,
    mean_interval,
    percentile_interval,
    ratio_interval,
    slope_interval,
)
from harness.report.model import Latencies, Latency, Summary


@pytest.mark.parametrize("percent", [50.0, 90.0, 99.0])
def test_an_interval_covers_the_true_percentile_about_as_often_as_it_claims(percent: float) -> None:
    rng = random.Random(7)
    covered = 0
    for _ in range(300):
        # Whole numbers below 1,000: the distribution keeps them exactly.
        low, high = percentile_interval(Distribution(rng.randrange(1000) for _ in range(2000)), percent) or (
            0,
            0,
        )
        covered += low <= percent * 10 <= high
    assert covered >= 0.92 * 300


def test_an_interval_narrows_with_more_values_and_needs_enough_of_them() -> None:
    few, many = (percentile_interval(Distribution(range(count)), 50.0) for count in (100, 2000))
    assert few is not None and many is not None
    assert (few[1] - few[0]) / 100 > (many[1] - many[0]) / 2000
    assert percentile_interval(Distribution(range(100)), 99.9) is None
    assert percentile_interval(Distribution(), 50.0) is None


def test_intervals_that_overlap_tell_nothing() -> None:
    assert compare_intervals((1, 2), (3, 4)) == "higher"
    assert compare_intervals((3, 4), (1, 2)) == "lower"
    assert compare_intervals((1, 3), (2, 4)) == "cannot tell"
    assert compare_intervals(None, (1, 2)) == "cannot tell"


def test_the_mean_of_few_runs_is_covered_as_often_as_its_interval_claims() -> None:
    rng = random.Random(11)
    intervals = [mean_interval([rng.gauss(100, 5) for _ in range(runs)]) for runs in (3, 5, 9) * 200]
    covered = sum(found is not None and found[0] <= 100 <= found[1] for found in intervals)
    assert 0.92 * 600 <= covered <= 0.98 * 600
    assert mean_interval([1.0, 2.0]) is None
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((-0.4841, 4.4841), abs=0.001)


def test_the_ratio_of_pairs_needs_three_of_them() -> None:
    assert ratio_interval([1, 2], [2, 4]) is None
    assert ratio_interval([1, 2, 0], [2, 4, 6]) is None
    low, high = ratio_interval([1, 2, 3], [2, 4, 6]) or (0, 0)
    assert low == pytest.approx(2)
    assert high == pytest.approx(2)
    low, high = ratio_interval([10, 11, 9, 10, 10, 12, 8], [10, 9, 11, 12, 8, 11, 10]) or (0, 0)
    assert low < 1 < high


def run(throughput: float, p99: float, interval: tuple[float, float] | None = None) -> Summary:
    intervals = {} if interval is None else {"p99": interval}
    latency = Latency(p50=1.0, p99=p99, count=1000, intervals=intervals)
    return Summary(schema="", throughput_per_s=throughput, latency_ms=Latencies(acquire=latency))


def answers(before: list[Summary], after: list[Summary]) -> dict[str, str]:
    return {found.metric: found.answer for found in compare_runs(before, after)}


def test_single_runs_differ_where_their_intervals_do() -> None:
    found = answers([run(100, 5, (4, 6))], [run(200, 9, (8, 10))])
    assert found["acquire.p99"] == "higher"
    assert found["throughput_per_s"] == "cannot tell", "one run each does not tell how much a run varies"
    assert answers([run(100, 5, (4, 6))], [run(200, 5.5, (5, 7))])["acquire.p99"] == "cannot tell"


def test_a_percentile_of_those_who_gave_up_is_no_figure_to_compare() -> None:
    one, other = run(100, 5, (4, 6)), run(100, 9, (8, 10))
    latency = replace(other.latency_ms.acquire, bounds=("p99",))
    other = replace(other, latency_ms=Latencies(acquire=latency))
    assert answers([one], [other])["acquire.p99"] == "cannot tell"


def test_repeated_runs_are_compared_pair_by_pair() -> None:
    """The machine is twice as fast in some rounds as in others, and the change is seen all the same."""
    before = [run(100, 5), run(200, 5), run(150, 5), run(110, 5)]
    after = [run(121, 5), run(239, 5), run(181, 5), run(131, 5)]
    assert answers(before, after)["throughput_per_s"] == "higher"
    assert answers(before, before)["throughput_per_s"] == "cannot tell"
    assert answers(before, after)["acquire.p99"] == "cannot tell"


def test_a_slope_is_found_within_its_interval_about_as_often_as_it_claims() -> None:
    """Also where samples that follow each other are alike."""
    rng = random.Random(1)
    hit = 0
    for _ in range(200):
        drift, values = 0.0, []
        for number in range(240):
            drift = 0.8 * drift + rng.gauss(0, 1)
            values.append(3.0 * number + drift)
        slope = slope_interval(range(240), values)
        assert slope is not None
        hit += slope.low <= 3.0 <= slope.high
    assert hit >= 180


def test_a_constant_has_no_slope_and_few_samples_have_none_that_is_known() -> None:
    assert slope_interval(range(16), [5.0] * 16) == (0.0, 0.0, 0.0)
    assert slope_interval(range(15), [5.0] * 15) is None
