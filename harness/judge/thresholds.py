"""Thresholds on a run's figures: `acquire.p99<50ms`, `failed==0`, `timed_out<1%`."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from harness.durations import format_duration, parse_duration
from harness.report.model import Judgement, Latency, Summary

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
_EXPRESSION = re.compile(r"\s*([a-z_0-9.]+)\s*(<=|>=|==|<|>)\s*(\S.*?)\s*")

LATENCIES = ("arrival_to_grant", "acquire", "hold", "write", "release", "schedule_lag")
QUANTILES = ("p50", "p90", "p99", "p999", "max")
# name -> where it stands in the summary
FIGURES: Mapping[str, str] = {
    "throughput_per_s": "throughput_per_s",
    "offered": "arrivals.offered",
    "dispatched": "arrivals.dispatched",
    "acquired": "arrivals.acquired",
    "timed_out": "arrivals.timed_out",
    "failed": "arrivals.failed",
    "lost": "arrivals.lost",
    "abandoned": "arrivals.abandoned",
    "backlog_max": "arrivals.backlog_max",
    "accepted": "resource.accepted",
    "stale_rejections": "resource.stale_rejections",
    "inversion_ratio": "order.inversion_ratio",
    "max_overtakes": "order.max_overtakes",
    "jain_index": "order.jain_index",
    "commands_per_acquire": "backend.commands_per_acquire",
}
_OF_ORDER = tuple(name for name, path in FIGURES.items() if path.startswith("order."))
# These may be given as a share of the arrivals.
_COUNTS = ("dispatched", "acquired", "timed_out", "failed", "lost", "abandoned", "stale_rejections")


@dataclass(frozen=True, slots=True)
class Threshold:
    """One bound on one figure of `summary.json`."""

    metric: str
    comparison: str
    text: str
    """The bound as it was written."""
    bound: float
    """In milliseconds for latencies; in percent of the arrivals when `percent`."""
    percent: bool = False

    @classmethod
    def parse(cls, text: str) -> "Threshold":
        """:raises ValueError: no such figure, or no such bound; says what there is."""
        match = _EXPRESSION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a threshold: write for example 'acquire.p99<50ms'")
        metric, comparison, bound = match.groups()
        name, dot, quantile = metric.partition(".")
        if dot and name in LATENCIES and quantile in QUANTILES:
            if bound[-1].isdigit():
                raise ValueError(f"{text!r}: a latency needs a unit, for example {bound}ms")
            return cls(metric, comparison, bound, parse_duration(bound) * 1e3)
        if metric not in FIGURES:
            raise ValueError(
                f"{metric!r} is not a figure of a run: choose one of {', '.join(FIGURES)}, "
                f"or a latency such as acquire.p99 ({', '.join(LATENCIES)}; {', '.join(QUANTILES)})"
            )
        percent = bound.endswith("%")
        if percent and metric not in _COUNTS:
            raise ValueError(f"{text!r}: {metric} is no share of the arrivals, leave out the %")
        try:
            value = float(bound.removesuffix("%"))
        except ValueError:
            raise ValueError(f"{text!r}: {bound!r} is not a number") from None
        return cls(metric, comparison, bound, value, percent)

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.text}"

    def judge(self, summary: Summary) -> Judgement:
        """Hold a summary against the bound. A figure that was not measured fails it."""
        value = figure(summary, self.metric)
        if value is None:
            return Judgement(str(self), False, None, f"{self}: failed, {self.metric} was not measured")
        passed = self.holds(value, offered=summary.arrivals.offered)
        shown = self.shown(value)
        return Judgement(
            str(self), passed, value, f"{self}: {'passed' if passed else 'failed'}, it was {shown}", shown
        )

    def holds(self, value: float, *, offered: int) -> bool:
        """Of a value of this figure, in a run that was offered this many arrivals."""
        bound = self.bound * offered / 100 if self.percent else self.bound
        return _OPERATORS[self.comparison](value, bound)

    def shown(self, value: float) -> str:
        """A value of this figure, for reading."""
        return format_duration(value / 1e3) if "." in self.metric else f"{value:g}"


def figure(summary: Summary, metric: str) -> float | None:
    """A figure of a run by the name that thresholds use; `None` when it was not measured."""
    name, dot, quantile = metric.partition(".")
    if dot:
        latency: Latency = getattr(summary.latency_ms, name)
        return float(getattr(latency, quantile)) if latency.count else None
    if metric in _OF_ORDER and summary.order is None:
        return None
    value = attrgetter(FIGURES[metric])(summary)
    return None if value is None else float(value)
