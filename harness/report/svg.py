"""The parts of a chart as SVG text: axes with round ticks, a plot area, a legend, one style sheet.

Pure: numbers in, text out. A picture is self-contained and follows the reader's light or dark colour
scheme, whether it stands in a page or is a file of its own.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

COLOURS = 8
WIDTH, HEIGHT = 620, 350
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 18, 82, 46
_CHARACTER = 6.6

STYLE = """
.chart text{font:12px system-ui,sans-serif;fill:#1b1f24}.chart .title{font-size:14px;font-weight:600}
.chart .sub{fill:#59636e;font-size:11px}.chart .ground{fill:#fff}.chart .grid{stroke:#e7ebef}
.chart .axis{stroke:#afb8c1}.chart path.line{fill:none;stroke-width:2;stroke-linejoin:round}
.chart .ideal{stroke:#8b949e;stroke-dasharray:5 4;fill:none;stroke-width:1.5}
.chart .dash{stroke-dasharray:6 4}.chart .band{fill:#cf222e;fill-opacity:.14}
.c0{--c:#0969da}.c1{--c:#cf5b00}.c2{--c:#1a7f37}.c3{--c:#8250df}.c4{--c:#bf3989}.c5{--c:#0a8a8a}
.c6{--c:#9a6700}.c7{--c:#57606a}
.chart .dot,.chart .bar{fill:var(--c)}.chart .dot{fill-opacity:.75}.chart path.line{stroke:var(--c)}
@media (prefers-color-scheme: dark){
.chart text{fill:#e6edf3}.chart .sub{fill:#9198a1}.chart .ground{fill:#0d1117}.chart .grid{stroke:#21262d}
.chart .axis{stroke:#484f58}
.c0{--c:#58a6ff}.c1{--c:#ffa657}.c2{--c:#3fb950}.c3{--c:#bc8cff}.c4{--c:#f778ba}.c5{--c:#39c5cf}
.c6{--c:#e3b341}.c7{--c:#9198a1}}
""".strip()


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to pixels, straight or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round values across the scale: powers of ten (and 2, 5 between) on a logarithmic one."""
        if not self.log:
            return round_ticks(self.low, self.high, wanted)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if len(powers) <= 3 else (1,)
        found = [step * 10.0**power for power in powers for step in steps]
        return [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]


def round_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """About `wanted` multiples of 1, 2 or 5 times a power of ten between the two."""
    if high <= low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def spread(values: Iterable[float], *, log: bool = False, from_zero: bool = True) -> tuple[float, float]:
    """The range that an axis should show for these values."""
    numbers = [value for value in values if value > 0 or not log]
    if not numbers:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(numbers), max(numbers)
    if log:
        return (low / 1.3, high * 1.3) if high > low else (low / 3, high * 3)
    low = min(low, 0.0) if from_zero else low
    return (low, high + (high - low) * 0.05) if high > low else (low, low + 1.0)


def number(value: float) -> str:
    """A tick's words: `0.5`, `20`, `3k`, `1.5M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The empty chart: where the plot is, its scales, and the text around it."""

    title: str
    x: Scale
    y: Scale
    x_label: str
    y_label: str
    subtitle: str = ""

    def draw(
        self,
        body: Sequence[str],
        legend: Sequence[tuple[str, str]] = (),
        *,
        x_names: Sequence[tuple[float, str]] = (),
    ) -> str:
        """The whole picture. `legend` is (class, name); `x_names` replaces the numbers of the x axis."""
        lines = [
            f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label={quoteattr(self.title)}>',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            text(14, 22, self.title, "title"),
        ]
        if self.subtitle:
            lines.append(text(14, 38, self.subtitle, "sub"))
        lines += self._axes(x_names)
        lines += body
        lines += self._legend(legend)
        return "\n".join([*lines, "</svg>"]) + "\n"

    def _axes(self, x_names: Sequence[tuple[float, str]]) -> list[str]:
        bottom, left, right, top = HEIGHT - _BOTTOM, _LEFT, WIDTH - _RIGHT, _TOP
        lines = []
        for tick in self.y.ticks():
            y = self.y(tick)
            lines.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(text(left - 8, y + 4, number(tick), "sub", "end"))
        for tick, name in x_names or [(tick, number(tick)) for tick in self.x.ticks(8)]:
            x = self.x(tick)
            lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
            lines.append(text(x, bottom + 16, name, "sub", "middle"))
        lines.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        lines.append(text(right, HEIGHT - 10, self.x_label, "sub", "end"))
        lines.append(text(14, top - 9, self.y_label, "sub"))
        return lines

    def _legend(self, entries: Sequence[tuple[str, str]]) -> list[str]:
        lines = []
        x = 14.0
        for style, name in entries:
            lines.append(f'<rect class="bar {style}" x="{x:.0f}" y="46" width="10" height="10" rx="2"/>')
            lines.append(text(x + 14, 55, name))
            x += len(name) * _CHARACTER + 26
        return lines


def frame(
    title: str,
    xs: Iterable[float],
    ys: Iterable[float],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    from_zero_x: bool = False,
    subtitle: str = "",
) -> Frame:
    """A frame that fits the values."""
    x = Scale(*spread(xs, log=log_x, from_zero=from_zero_x), _LEFT, WIDTH - _RIGHT, log_x)
    y = Scale(*spread(ys, log=log_y), HEIGHT - _BOTTOM, _TOP, log_y)
    return Frame(title, x, y, x_label, y_label, subtitle)


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    """A line of text at a place."""
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def tooltip(words: str) -> str:
    """What a reader sees who points at the shape around it."""
    return f"<title>{escape(words)}</title>"
