"""The distribution agrees with HdrHistogram, whatever is put in, and survives packing and merging."""

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from harness.history.distribution import HIGHEST_NS, SIGNIFICANT_FIGURES, Distribution, highest_equivalent
from harness.report.latencies import figures_of
from harness.report.model import Figures

PERCENTS = (0.1, 25.0, 50.0, 90.0, 99.0, 99.9)
latencies = st.integers(0, 5_000) | st.integers(0, 10**8) | st.integers(0, HIGHEST_NS)


def hdr(values: list[int]) -> HdrHistogram:
    histogram = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for value in values:
        assert histogram.record_value(value)
    return histogram


@given(st.lists(latencies, min_size=1, max_size=200))
def test_percentiles_are_those_of_hdrhistogram(values: list[int]) -> None:
    theirs = [hdr(values).get_value_at_percentile(percent) for percent in PERCENTS]
    assert Distribution(values).percentiles(*PERCENTS) == [min(value, max(values)) for value in theirs]


@given(latencies)
def test_buckets_are_those_of_hdrhistogram(value: int) -> None:
    assert highest_equivalent(value) == hdr([value]).get_highest_equivalent_value(value)


@given(st.lists(latencies, max_size=100))
def test_the_hdrhistogram_made_of_it_has_the_same_counts(values: list[int]) -> None:
    assert list(Distribution(values).to_hdr().counts) == list(hdr(values).counts)


signed = st.integers(-(10**7), 10**7)


@given(st.lists(signed, max_size=60), st.lists(signed, max_size=60))
def test_merging_is_the_same_as_recording_together(some: list[int], more: list[int]) -> None:
    merged = Distribution(some)
    merged.merge(Distribution(more))
    together = Distribution([*some, *more])
    for one in (merged, Distribution.unpack(merged.pack()), Distribution.from_text(merged.to_text())):
        assert figures_of(one) == figures_of(together)
        assert (one.count, one.min, one.max, one.negative) == (
            together.count,
            min([*some, *more], default=0),
            max([*some, *more], default=0),
            sum(value < 0 for value in [*some, *more]),
        )


def test_percentiles_may_be_asked_in_any_order() -> None:
    assert Distribution(range(1, 1001)).percentiles(99, 50, 99, 100) == [990, 500, 990, 1000]


def test_an_empty_distribution_is_all_zero() -> None:
    assert figures_of(Distribution()) == Figures(p50=0, p90=0, p99=0, p999=0, max=0, count=0)


def test_figures_are_in_milliseconds() -> None:
    figures = figures_of(Distribution([1_000_000] * 999 + [2_000_000_000]))
    assert figures.count == 1000
    assert figures.max == 2000
    assert figures.p50 == pytest.approx(1, rel=0.001)
    assert figures.p999 == pytest.approx(1, rel=0.001)
