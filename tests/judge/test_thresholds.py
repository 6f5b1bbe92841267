"""Thresholds: a bound that a run's figures must keep."""

import pytest

from harness.judge.thresholds import FIGURES, LATENCIES, QUANTILES, Threshold
from harness.report.model import Arrivals, Latencies, Latency, ResourceFigures, Summary

SUMMARY = Summary(
    schema="",
    throughput_per_s=480.5,
    arrivals=Arrivals(offered=1000, acquired=990, timed_out=10, backlog_max=7),
    latency_ms=Latencies(acquire=Latency(p50=1.5, p99=49.9, max=120.0, count=990)),
    resource=ResourceFigures(stale_rejections=3),
)


@pytest.mark.parametrize(
    "text",
    [
        "acquire.p99<50ms",
        "acquire.p99 <= 49900us",
        "acquire.max>100ms",
        "throughput_per_s>480",
        "failed==0",
        "timed_out<=1%",
        "timed_out<2%",
        "acquired>=99%",
        "stale_rejections>=3",
        "backlog_max<8",
    ],
)
def test_a_bound_that_holds_passes(text: str) -> None:
    judgement = Threshold.parse(text).judge(SUMMARY)
    assert judgement.passed
    assert "passed" in judgement.sentence


@pytest.mark.parametrize(
    "text", ["acquire.p99<49ms", "acquire.p50>2ms", "throughput_per_s>=481", "failed>0", "timed_out<1%"]
)
def test_a_bound_that_does_not_hold_fails_and_says_what_it_was(text: str) -> None:
    judgement = Threshold.parse(text).judge(SUMMARY)
    assert not judgement.passed
    assert "failed, it was" in judgement.sentence


@pytest.mark.parametrize("text", ["hold.p99<1s", "inversion_ratio<0.5", "commands_per_acquire<3"])
def test_what_was_not_measured_fails(text: str) -> None:
    judgement = Threshold.parse(text).judge(SUMMARY)
    assert not judgement.passed
    assert "was not measured" in judgement.sentence


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a threshold"),
        ("acquire.p99", "not a threshold"),
        ("acquire.p99=<5ms", "not a threshold"),
        ("acquire.p99<5", "needs a unit, for example 5ms"),
        ("acquire.p99<fast", "not a duration"),
        ("acquire.p98<5ms", "choose one of"),
        ("speed<5", "choose one of"),
        ("failed<few", "not a number"),
        ("throughput_per_s>90%", "no share of the arrivals"),
    ],
)
def test_nonsense_is_refused_with_what_there_is(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Threshold.parse(text)


def test_every_figure_and_every_latency_can_be_bounded() -> None:
    for name in FIGURES:
        assert str(Threshold.parse(f"{name} < 5")) == f"{name}<5"
    for name in LATENCIES:
        for quantile in QUANTILES:
            Threshold.parse(f"{name}.{quantile}<5ms")
