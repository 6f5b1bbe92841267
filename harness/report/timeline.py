"""Draws what happened as a timeline: lanes from left to right, as a small SVG written by hand.

Pure: data in, text out. The picture is self-contained, follows the reader's light or dark colour
scheme, and every shape carries its words as a tooltip.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

Kind = Literal["wait", "hold", "lease", "lease2", "frozen", "fault", "good", "bad", "plain"]

_WIDTH = 1000
_LEFT, _RIGHT = 150, 30
_LANE, _BAR, _HALF = 64, 22, 14
_TITLE, _AXIS, _GAP = 56, 40, 24
_CHARACTER = 6.3  # the mean width of a character at 11 px
_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)

_STYLE = """
text{font:11px system-ui,sans-serif;fill:#1b1f24}
.title{font-size:14px;font-weight:600}.sub{fill:#59636e}
.ground{fill:#ffffff}.rule{stroke:#d1d9e0}.grid{stroke:#eef1f4}
.wait{fill:#d8dee4}.hold{fill:#9ecbff}.lease{fill:#b6d7ff}.lease2{fill:#c8e6c9}
.frozen{fill:#6e7781}.fault{fill:#e0a800}.plain{fill:#59636e}.good{fill:#1a7f37}.bad{fill:#d1242f}
line.good{stroke:#1a7f37}line.bad{stroke:#d1242f}line.plain{stroke:#59636e}
.flag{stroke:#d1242f;stroke-width:1.5;stroke-dasharray:4 3}
text.good{fill:#1a7f37}text.bad{fill:#d1242f;font-weight:600}text.onfrozen{fill:#fff}
@media (prefers-color-scheme: dark){
text{fill:#e6edf3}.sub{fill:#9198a1}.ground{fill:#0d1117}.rule{stroke:#3d444d}.grid{stroke:#1c2128}
.wait{fill:#30363d}.hold{fill:#1f4b8f}.lease{fill:#1b3d6d}.lease2{fill:#1f5130}.frozen{fill:#8b949e}
.plain{fill:#9198a1}.good{fill:#3fb950}.bad{fill:#f85149}line.good{stroke:#3fb950}line.bad{stroke:#f85149}
text.good{fill:#3fb950}text.bad{fill:#f85149}.flag{stroke:#f85149}text.onfrozen{fill:#0d1117}}
""".strip()


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted, from `start` to `end` nanoseconds."""

    start: int
    end: int
    kind: Kind
    label: str = ""
    half: Literal["", "upper", "lower"] = ""
    """Takes half of the bar's height, so that two can be seen to overlap."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a moment."""

    at: int
    kind: Kind
    label: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One participant."""

    name: str
    spans: Sequence[Span] = ()
    marks: Sequence[Mark] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message from one lane to another; lanes by number."""

    start: int
    source: int
    end: int
    target: int
    kind: Kind = "plain"


@dataclass(frozen=True, slots=True)
class Panel:
    """One timeline with a clock of its own."""

    title: str
    lanes: Sequence[Lane]
    arrows: Sequence[Arrow] = ()
    flags: Sequence[Mark] = field(default_factory=tuple)
    """Moments that concern everybody: a violation is a red line through all lanes."""
    subtitle: str = ""

    @property
    def end(self) -> int:
        times = [span.end for lane in self.lanes for span in lane.spans]
        times += [mark.at for lane in self.lanes for mark in lane.marks]
        return max([*times, 1])

    @property
    def height(self) -> int:
        return _TITLE + _LANE * len(self.lanes) + _AXIS


def draw(panels: Sequence[Panel]) -> str:
    """The SVG document: the panels below one another."""
    height = sum(panel.height for panel in panels) + _GAP * (len(panels) - 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(panels[0].title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>',
    ]
    top = 0
    for panel in panels:
        parts.append(f'<g transform="translate(0 {top})">')
        parts += _Drawing(panel).parts()
        parts.append("</g>")
        top += panel.height + _GAP
    return "\n".join([*parts, "</svg>", ""])


class _Drawing:
    """Knows where a panel's times and lanes are."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._end = panel.end * 1.02
        self._bottom = _TITLE + _LANE * len(panel.lanes)

    def _x(self, at: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(at, 0), self._end) / self._end, 1)

    def _y(self, lane: int) -> float:
        """The middle of a lane's bar."""
        return _TITLE + _LANE * lane + _LANE / 2

    def parts(self) -> list[str]:
        panel = self._panel
        parts = [f'<text class="title" x="16" y="22">{escape(panel.title)}</text>']
        if panel.subtitle:
            parts.append(f'<text class="sub" x="16" y="40">{escape(panel.subtitle)}</text>')
        parts += self._axis()
        for number, lane in enumerate(panel.lanes):
            parts += self._lane(number, lane)
        parts += [self._arrow(arrow) for arrow in panel.arrows]
        for flag in panel.flags:
            parts += self._flag(flag)
        return parts

    def _axis(self) -> list[str]:
        seconds = self._end / 1e9
        step = next((tick for tick in _TICKS if seconds / tick <= 12), _TICKS[-1])
        parts = []
        for number in range(int(seconds / step) + 1):
            x = self._x(number * step * 1e9)
            parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TITLE}" y2="{self._bottom}"/>')
            label = f"{number * step:.3f}".rstrip("0").rstrip(".")
            parts.append(
                f'<text class="sub" x="{x}" y="{self._bottom + 18}" text-anchor="middle">{label} s</text>'
            )
        return parts

    def _lane(self, number: int, lane: Lane) -> list[str]:
        middle = self._y(number)
        parts = [
            f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{middle}" y2="{middle}"/>',
            f'<text x="{_LEFT - 12}" y="{middle + 4}" text-anchor="end">{escape(lane.name)}</text>',
        ]
        for order, span in enumerate(lane.spans):
            covered = any(
                later.start < span.end and span.start < later.end and later.half == span.half
                for later in lane.spans[order + 1 :]
            )
            parts += self._span(middle, span, labelled=not covered)
        rows = {-1: float(_LEFT), 1: float(_LEFT)}  # how far labels above and below the bar reach
        for mark in sorted(lane.marks, key=lambda mark: mark.at):
            parts += self._mark(middle, mark, rows)
        return parts

    def _span(self, middle: float, span: Span, *, labelled: bool) -> list[str]:
        start, end = self._x(span.start), self._x(span.end)
        width = max(end - start, 1.5)
        height = _BAR - 6 if span.kind == "frozen" else _BAR  # what it covers stays visible
        if span.half:
            height = _HALF
            middle += _HALF / 2 * (-1 if span.half == "upper" else 1)
        parts = [
            f'<rect class="{span.kind}" x="{start}" y="{middle - height / 2}" width="{width:.1f}" '
            f'height="{height}" rx="3">'
            f"<title>{escape(span.label or span.kind)}</title></rect>"
        ]
        if labelled and span.label and len(span.label) * _CHARACTER + 10 <= width:
            colour = "onfrozen" if span.kind == "frozen" else ""
            parts.append(
                f'<text class="{colour}" x="{start + 6}" y="{middle + 4}">{escape(span.label)}</text>'
            )
        return parts

    def _mark(self, middle: float, mark: Mark, rows: dict[int, float]) -> list[str]:
        x = self._x(mark.at)
        parts = [
            f'<circle class="{mark.kind}" cx="{x}" cy="{middle}" r="5">'
            f"<title>{escape(mark.label)}</title></circle>"
        ]
        width = len(mark.label) * _CHARACTER
        if not mark.label:
            return parts
        left = max(float(_LEFT), min(x - 4, _WIDTH - 6 - width))
        side = next((side for side in (-1, 1) if left >= rows[side]), None)
        if side is None:
            return parts  # no room: the tooltip has it
        rows[side] = left + width + 8
        y = middle + (-_BAR / 2 - 5 if side < 0 else _BAR / 2 + 13)
        parts.append(f'<text class="{mark.kind}" x="{left:.1f}" y="{y}">{escape(mark.label)}</text>')
        return parts

    def _arrow(self, arrow: Arrow) -> str:
        down = 1 if arrow.target > arrow.source else -1
        start = self._y(arrow.source) + down * _BAR / 2
        end = self._y(arrow.target) - down * 6
        return (
            f'<line class="{arrow.kind}" x1="{self._x(arrow.start)}" y1="{start}" '
            f'x2="{self._x(arrow.end)}" y2="{end}" stroke-width="1.5"/>'
        )

    def _flag(self, flag: Mark) -> list[str]:
        x = self._x(flag.at)
        anchor = "end" if x > _WIDTH / 2 else "start"
        shift = -6 if anchor == "end" else 6
        return [
            f'<line class="flag" x1="{x}" x2="{x}" y1="{_TITLE - 8}" y2="{self._bottom}">'
            f"<title>{escape(flag.label)}</title></line>",
            f'<text class="bad" x="{x + shift}" y="{_TITLE - 2}" text-anchor={quoteattr(anchor)}>'
            f"{escape(flag.label)}</text>",
        ]
