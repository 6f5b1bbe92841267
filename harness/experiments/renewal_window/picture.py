"""How often a stale write arrived: a cell for each way to hold the lock and each length of the pause.

A small SVG written by hand. Pure: data in, text out.
"""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from harness.experiments.renewal_window.arms import ARMS, GUARDS, LEVELS, Arm

Cells = Mapping[tuple[Arm, float], tuple[int, int]]
"""Stale writes that arrived, and trials, by arm and pause in TTLs."""

_WIDTH = 1000
_LEFT, _RIGHT = 330, 24
_ROW, _GAP, _GROUP = 26, 3, 46
_TOP, _BOTTOM = 92, 84

_STYLE = """
text{font:12px system-ui,sans-serif;fill:#1b1f24}
.title{font-size:15px;font-weight:600}.sub{fill:#59636e}.level{font-weight:600}
.ground{fill:#ffffff}.none{fill:#dafbe1}.some{fill:#d1242f}.ttl{stroke:#59636e;stroke-dasharray:4 3}
.dark{fill:#ffffff}
@media (prefers-color-scheme: dark){
text{fill:#e6edf3}.sub{fill:#9198a1}.ground{fill:#0d1117}.none{fill:#12361f}.some{fill:#f85149}
.ttl{stroke:#9198a1}.dark{fill:#0d1117}}
""".strip()


def draw(cells: Cells, pauses: Sequence[float], *, ttl: float) -> str:
    group = _GROUP + _ROW * 2 * len(GUARDS)
    height = _TOP + group * len(LEVELS) + _BOTTOM
    width = (_WIDTH - _LEFT - _RIGHT) / len(pauses)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>The unsafe window narrows and never closes</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>',
        '<text class="title" x="16" y="26">The unsafe window narrows and never closes</text>',
        '<text class="sub" x="16" y="46">Trials in which the holder\'s write reached the resource after its '
        f"successor's: red. TTL {ttl:g} s; the holder works for 0 to 2 TTLs, then follows the steps.</text>",
    ]
    for column, pause in enumerate(pauses):
        x = _LEFT + (column + 0.5) * width
        parts.append(f'<text class="sub" x="{x:.1f}" y="{_TOP - 8}" text-anchor="middle">{pause:g}</text>')
    parts.append(f'<text class="sub" x="{_LEFT - 12}" y="{_TOP - 8}" text-anchor="end">pause, in TTLs</text>')
    top = float(_TOP)
    for level in LEVELS:
        parts.append(f'<text class="level" x="16" y="{top + 24}">{level} frozen</text>')
        top += _GROUP - 10
        for arm in (arm for arm in ARMS if arm.level == level):
            parts += _row(arm, cells, pauses, top, width)
            top += _ROW
        top += 10
    beyond = sum(pause <= 1 for pause in pauses)
    x = _LEFT + beyond * width - _GAP / 2
    parts.append(f'<line class="ttl" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{top}"/>')
    parts.append(f'<text class="sub" x="{x + 6:.1f}" y="{_TOP + 16}">longer than the TTL</text>')
    for number, line in enumerate(_LEGEND):
        parts.append(f'<text class="sub" x="16" y="{top + 28 + 18 * number}">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>", ""])


_LEGEND = (
    "Renewal keeps the lease while the watchdog runs. A check() after the pause stops a holder that lost it.",
    "Neither helps a holder that is frozen between its last look and its write.",
    "With the fence on the resource refused every one of these writes.",
)


def _row(arm: Arm, cells: Cells, pauses: Sequence[float], top: float, width: float) -> list[str]:
    label = f"watchdog {'on' if arm.watchdog else 'off'}:  {arm.guard}"
    parts = [f'<text x="{_LEFT - 12}" y="{top + 17}" text-anchor="end">{escape(label)}</text>']
    for column, pause in enumerate(pauses):
        stale, trials = cells.get((arm, pause), (0, 0))
        share = stale / trials if trials else 0.0
        x = _LEFT + column * width
        box = f'x="{x:.1f}" y="{top}" width="{width - _GAP:.1f}" height="{_ROW - _GAP}" rx="3"'
        parts.append(f'<rect class="none" {box}/>')
        if stale:
            parts.append(f'<rect class="some" {box} fill-opacity="{0.25 + 0.75 * share:.2f}"/>')
        colour = "dark" if share > 0.5 else ""
        parts.append(
            f'<text class="{colour}" x="{x + (width - _GAP) / 2:.1f}" y="{top + 16}" text-anchor="middle">'
            f"{stale}/{trials}<title>{escape(arm.name)}, pause of {pause:g} TTLs</title></text>"
        )
    return parts
