"""Bounds that end a run while it lasts: `--abort-on 'timed_out>10%'`."""

from collections.abc import Sequence

from harness.durations import format_duration
from harness.history.distribution import Distribution
from harness.judge.thresholds import QUANTILES, Threshold
from harness.load.fleet import Progress
from harness.report.model import Judgement

_COUNTED = ("acquired", "timed_out", "failed", "lost", "accepted", "stale_rejections", "backlog_max")
_RECENT = ("arrival_to_grant", "schedule_lag")
"""Over the last two to three seconds."""
_KNOWN = (
    *_COUNTED,
    "throughput_per_s",
    *(f"{name}.{quantile}" for name in _RECENT for quantile in QUANTILES),
)
_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}


def parse_abort(text: str) -> Threshold:
    """A bound on a figure that is known while the run lasts.

    :raises ValueError: there is no such figure; says which there are.
    """
    threshold = Threshold.parse(text)
    if threshold.metric not in _KNOWN:
        raise ValueError(
            f"{threshold.metric!r} is not known before the run is over: choose one of {', '.join(_KNOWN)}"
        )
    return threshold


class AbortRules:
    """Looks at a run as it goes on; remembers the first bound that it crossed."""

    def __init__(self, rules: Sequence[str], *, warmup: float = 0.0) -> None:
        """Nothing is looked at in the first `warmup` seconds."""
        self._rules = [parse_abort(text) for text in rules]
        self._warmup = warmup
        self.crossed: Judgement | None = None

    def look(self, progress: Progress) -> bool:
        """Whether the run is to end now."""
        if self.crossed is None and progress.elapsed > self._warmup:
            self.crossed = next(filter(None, (_crossed(rule, progress) for rule in self._rules)), None)
        return self.crossed is not None


def _crossed(rule: Threshold, progress: Progress) -> Judgement | None:
    value = _figure(progress, rule.metric)
    if value is None or not rule.holds(value, offered=progress.counters.offered):
        return None
    shown = rule.shown(value)
    after = format_duration(progress.elapsed)
    return Judgement(
        f"--abort-on {rule}", False, value, f"{rule}: the run was ended after {after}, it was {shown}", shown
    )


def _figure(progress: Progress, metric: str) -> float | None:
    name, dot, quantile = metric.partition(".")
    if dot:
        recent = progress.recent.get(name, Distribution())
        return recent.percentiles(_PERCENTS[quantile])[0] / 1e6 if recent.count else None
    if metric == "throughput_per_s":
        return progress.acquired_per_s
    return float(getattr(progress.counters, "stale" if metric == "stale_rejections" else metric))
