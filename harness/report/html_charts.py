"""The charts of a run, from its rows: percentiles, latency and throughput over time, queue, order."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.history import Row
from harness.history.distribution import Distribution
from harness.report.charts import Band, Series, bars, lines, scatter
from harness.report.model import Summary
from harness.report.violations import Violation

_MS, _S = 1e6, 1e9
_BINS = 60
_PERCENTS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99)
_MOST_HOLDERS = 4000


def charts_of(rows: Sequence[Row], summary: Summary) -> dict[str, str]:
    """SVG by name. A run in which nothing was granted has fewer of them."""
    granted = [row for row in rows if row.granted is not None]
    pictures: dict[str, str] = {}
    bands = bands_of(summary)
    if granted:
        pictures["percentiles"] = _percentiles(granted)
        pictures["latency"] = _latency(granted, bands)
    if rows:
        pictures["throughput"] = _throughput(rows, granted, bands)
        pictures["queue"] = _queue(rows, summary)
    if len(granted) > 1:
        pictures["order"] = _order(granted)
    lag = summary.certificate.lag_histogram
    if lag:
        pictures["lag"] = _lag(lag)
    return pictures


def bands_of(summary: Summary) -> list[Band]:
    """Faults, as they are drawn behind everything that has a time."""
    return [
        Band(fault.label, fault.at_s, summary.duration_s if fault.until_s is None else fault.until_s)
        for fault in summary.faults
    ]


def holders_of(
    rows: Iterable[Row], faults: Sequence[Band] = (), violations: Mapping[int, Violation] | None = None
) -> dict[str, Any]:
    """The data of the timeline: those who held one key, in order, a few thousand at most.

    The most wanted key; of a run with `violations` that of the first one, and what happened around it.
    """
    held = [row for row in rows if row.granted is not None]
    if not held:
        return {"key": None, "rows": [], "left_out": 0, "before": 0, "faults": [], "focus": None}
    violations = violations or {}
    held.sort(key=lambda row: row.granted or 0)
    decisive = next((row for row in held if row.id in violations), None)
    key = decisive.key if decisive else Counter(row.key for row in held).most_common(1)[0][0]
    chosen = [row for row in held if row.key == key]
    before = max(chosen.index(decisive) - _MOST_HOLDERS // 2, 0) if decisive else 0
    writes = {"accepted": 0, "stale": 1}
    return {
        "key": key,
        "left_out": max(len(chosen) - _MOST_HOLDERS, 0),
        "before": before,
        "focus": None if decisive is None else _around(decisive, violations[decisive.id].at),
        "faults": [[band.name, band.start * 1e3, band.end * 1e3] for band in faults],
        "rows": [
            [
                round((row.called or row.intended) / _MS, 3),
                round((row.granted or 0) / _MS, 3),
                round(_ended(row) / _MS, 3),
                row.fence,
                writes.get(row.write, 2),
                int(row.paused),
                row.id,
                *_broken(violations.get(row.id)),
            ]
            for row in chosen[before : before + _MOST_HOLDERS]
        ],
    }


def _broken(violation: Violation | None) -> tuple[str, float | None]:
    return ("", None) if violation is None else (violation.phrase, round(violation.at / _MS, 3))


def _around(row: Row, at: int) -> list[float]:
    """The decisive moment and a little of this hold on either side of it, in milliseconds."""
    margin = max((_ended(row) - (row.granted or 0)) / _MS / 4, 5.0)
    return [max(at / _MS - margin, 0.0), at / _MS + margin]


def _ended(row: Row) -> int:
    return row.released or row.write_done or row.granted or 0


def _percentiles(granted: Sequence[Row]) -> str:
    parts = {
        "arrival to grant": [(row.granted or 0) - row.intended for row in granted],
        "acquire": [(row.granted or 0) - row.called for row in granted if row.called is not None],
        "write": [
            row.write_done - row.write_sent
            for row in granted
            if row.write_done is not None and row.write_sent is not None
        ],
    }
    series = []
    for name, values in parts.items():
        # A percentile with fewer than a couple of values beyond it is a single value's luck.
        shown = [percent for percent in _PERCENTS if len(values) * (1 - percent / 100) >= 2]
        if not shown:
            continue
        found = Distribution(values).percentiles(*shown)
        series.append(
            Series(
                name,
                [
                    (1 / (1 - percent / 100), max(value / _MS, 1e-3))
                    for percent, value in zip(shown, found, strict=True)
                ],
            )
        )
    return lines(
        "Latency by percentile",
        series,
        x_label="one in so many is slower (2: p50, 100: p99, 1,000: p99.9)",
        y_label="ms",
        log_x=True,
        log_y=True,
    )


def _latency(granted: Sequence[Row], faults: Sequence[Band]) -> str:
    step = _step(granted)
    bins: dict[int, list[int]] = {}
    for row in granted:
        bins.setdefault((row.granted or 0) // step, []).append((row.granted or 0) - row.intended)
    series: dict[str, list[tuple[float, float]]] = {"p50": [], "p99": []}
    for index, waits in sorted(bins.items()):
        middle = (index + 0.5) * step / _S
        p50, p99 = Distribution(waits).percentiles(50, 99)
        series["p50"].append((middle, p50 / _MS))
        series["p99"].append((middle, p99 / _MS))
    return lines(
        "Latency over time",
        [Series(name, points) for name, points in series.items()],
        x_label="seconds of the run, by grant",
        y_label="ms from intended arrival to grant",
        bands=faults,
    )


def _throughput(rows: Sequence[Row], granted: Sequence[Row], faults: Sequence[Band]) -> str:
    step = _step(rows)
    return lines(
        "Throughput",
        [
            Series("granted", _rate((row.granted for row in granted), step)),
            Series("offered", _rate((row.intended for row in rows), step), dashed=True),
        ],
        x_label="seconds of the run",
        y_label="per second",
        bands=faults,
    )


def _queue(rows: Sequence[Row], summary: Summary) -> str:
    patience = summary.config.timeout
    come = sorted(row.intended for row in rows)
    gone = sorted(_left(row, patience) for row in rows)
    last = max(gone[-1], come[-1])
    points = []
    for index in range(2 * _BINS + 1):
        at = last * index // (2 * _BINS)
        points.append((at / _S, float(bisect_right(come, at) - bisect_right(gone, at))))
    return lines(
        "Queue depth",
        [Series("due and not yet granted", points)],
        x_label="seconds of the run",
        y_label="arrivals",
        bands=bands_of(summary),
    )


def _left(row: Row, patience: float | None) -> int:
    if row.granted is not None:
        return row.granted
    return row.intended + round((patience or 0.0) * _S)


def _order(granted: Sequence[Row]) -> str:
    by_arrival = sorted(granted, key=lambda row: row.intended)
    rank = {row.id: place for place, row in enumerate(by_arrival)}
    by_grant = sorted(granted, key=lambda row: row.granted or 0)
    return scatter(
        "Order of arrival against order of grant",
        [Series("", [(rank[row.id], place) for place, row in enumerate(by_grant)])],
        x_label="arrived as number",
        y_label="granted as number",
        diagonal=True,
        subtitle="On the dashed line: first come first served.",
    )


def _lag(histogram: Mapping[str, int]) -> str:
    return bars(
        "How late the generator was",
        {name: {"arrivals": float(count)} for name, count in histogram.items()},
        y_label="arrivals",
        subtitle="Admitted less due, signed. A good generator is all on the left.",
    )


def _rate(times: Iterable[int | None], step: int) -> list[tuple[float, float]]:
    counts = Counter(at // step for at in times if at is not None)
    if not counts:
        return []
    return [
        ((index + 0.5) * step / _S, counts[index] * _S / step)
        for index in range(min(counts), max(counts) + 1)
    ]


def _step(rows: Sequence[Row]) -> int:
    """The width of a bin: the run in sixty parts, not less than 50 ms."""
    last = max((row.granted or row.intended) for row in rows)
    return max(last // _BINS, 50_000_000)
