"""Ratios of one run: what one subject did in a round over what another did in the round beside it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from harness.judge.statistics import mean_interval, ratio_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One row: what is claimed, and every figure that it rests on."""

    work: str
    against: str
    unit: str
    ours: tuple[float, ...]
    """A round each."""
    theirs: tuple[float, ...]
    """Of the same rounds."""
    bound: float
    """What the ratio is to reach at least, or at most."""
    at_most: bool = False

    @property
    def each(self) -> list[float]:
        pairs = zip(self.ours, self.theirs, strict=True)
        return [ours / theirs if theirs else math.inf for ours, theirs in pairs]

    @property
    def value(self) -> float:
        return median(self.each)

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row that stands for itself: a time, a share, a size."""

    work: str
    unit: str
    values: tuple[float, ...]
    """A round each."""
    bound: float
    at_most: bool = True

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound


def table(ratios: Sequence[Ratio], figures: Sequence[Figure] = ()) -> Iterator[str]:
    """In Markdown: medians, and what 95 % of such rounds' means would lie in."""
    if ratios:
        yield "| work | against | ours | theirs | ratio | 95 % interval | bound |"
        yield "|---|---|---|---|---|---|---|"
    for one in ratios:
        ours, theirs = (f"{rounded(median(side))} {one.unit}" for side in (one.ours, one.theirs))
        yield (
            f"| {one.work} | {one.against} | {ours} | {theirs} | {one.value:.3g}{_mark(one)} "
            f"| {_between(ratio_interval(one.theirs, one.ours))} | {_sign(one)} {one.bound:g} |"
        )
    if figures:
        yield ""
        yield "| work | measured | 95 % interval | bound |"
        yield "|---|---|---|---|"
    for figure in figures:
        yield (
            f"| {figure.work} | {rounded(figure.value)} {figure.unit}{_mark(figure)} "
            f"| {_between(mean_interval(figure.values))} | {_sign(figure)} {figure.bound:g} |"
        )


def to_json(rows: Sequence[Ratio | Figure]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def _mark(row: Ratio | Figure) -> str:
    return "" if row.holds else " **missed**"


def _sign(row: Ratio | Figure) -> str:
    return "≤" if row.at_most else "≥"


def _between(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return "–"
    return f"{rounded(max(interval[0], 0.0))} to {rounded(interval[1])}"


def rounded(value: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def by_round(rounds: Sequence[Mapping[str, float]], name: str) -> tuple[float, ...]:
    """The figures of `name`, a round each."""
    return tuple(one[name] for one in rounds)
