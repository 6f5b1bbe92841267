"""The latencies of a run, including arrivals that gave up: what they waited is a lower bound."""

from collections.abc import Sequence

from harness.config import RunConfig
from harness.history import Row
from harness.history.distribution import Distribution
from harness.history.recording import Recording
from harness.judge.statistics import percentile_interval
from harness.report.model import Figures, Latencies, Latency

_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
_NANOSECONDS = 1_000_000_000


def latencies(recording: Recording, rows: Sequence[Row], config: RunConfig, seconds: float) -> Latencies:
    """The `latency_ms` of `summary.json`. `seconds` is the length of the run."""
    total = recording.total
    end = round(seconds * _NANOSECONDS)
    patience = None if config.timeout is None else round(config.timeout * _NANOSECONDS)
    from_arrival: list[int] = []
    from_call: list[int] = []
    for row in rows:
        if row.granted is None and row.outcome in ("timed_out", "abandoned"):
            gave_up = end if patience is None or row.outcome == "abandoned" else row.intended + patience
            from_arrival.append(max(gave_up - row.intended, 0))
            if row.called is not None:
                from_call.append(max(gave_up - row.called, 0))
    lag = total["schedule_lag"]
    return Latencies(
        arrival_to_grant=_latency(total["arrival_to_grant"], from_arrival),
        acquire=_latency(total["acquire"], from_call),
        hold=_latency(total["hold"]),
        write=_latency(total["write"]),
        release=_latency(total["release"]),
        schedule_lag=_latency(lag, early=lag.negative, least=lag.min),
    )


def _latency(
    granted: Distribution, gave_up: Sequence[int] = (), *, early: int | None = None, least: int | None = None
) -> Latency:
    whole = Distribution()
    whole.merge(granted)
    whole.add(gave_up)
    figures = figures_of(whole)
    shortest = min(gave_up, default=None)
    named = {**{name: getattr(figures, name) for name in _PERCENTS}, "max": figures.max}
    intervals = {name: percentile_interval(whole, percent) for name, percent in _PERCENTS.items()}
    return Latency(
        p50=figures.p50,
        p90=figures.p90,
        p99=figures.p99,
        p999=figures.p999,
        max=figures.max,
        count=figures.count,
        intervals={name: (_ms(found[0]), _ms(found[1])) for name, found in intervals.items() if found},
        bounds=tuple(
            name for name, value in named.items() if shortest is not None and value >= _ms(shortest)
        ),
        granted=figures_of(granted) if gave_up else None,
        early=early,
        min=None if least is None else _ms(least),
    )


def figures_of(values: Distribution) -> Figures:
    """Percentiles of nanoseconds, in milliseconds."""
    p50, p90, p99, p999 = map(_ms, values.percentiles(*_PERCENTS.values()))
    return Figures(p50=p50, p90=p90, p99=p99, p999=p999, max=_ms(values.max), count=values.count)


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 6)
