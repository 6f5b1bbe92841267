"""Charts of measurements as SVG: lines, points and bars. Pure: data in, text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report.svg import COLOURS, Frame, Scale, frame, number, tooltip

Point = tuple[float, float]
_DOTS = 'fill="none" stroke-width="3.6" stroke-linecap="round" stroke-opacity=".75" style="stroke:var(--c)"'
MAX_DOTS = 1500
"""Points beyond this are thinned out: nobody sees them, and a page must open quickly."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line or cloud of a chart."""

    name: str
    points: Sequence[Point]
    dashed: bool = False
    colour: int | None = None
    """The number of a colour; by position when not given, so that pairs can share one."""


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the x axis that is set off from the rest."""

    name: str
    start: float
    end: float


def lines(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    subtitle: str = "",
    bands: Sequence[Band] = (),
) -> str:
    """Lines with a dot at each point that was measured (up to a hundred; beyond, the line alone)."""
    drawn = frame(
        title,
        [x for one in series for x, _ in one.points],
        [y for one in series for _, y in one.points],
        x_label=x_label,
        y_label=y_label,
        log_x=log_x,
        log_y=log_y,
        subtitle=subtitle,
    )
    body = [_band(drawn, band) for band in bands]
    for index, one in enumerate(series):
        style = _colour(one, index)
        places = [(drawn.x(x), drawn.y(y)) for x, y in one.points]
        if len(places) > 1:
            path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            body.append(f'<path class="line {style}{" dash" if one.dashed else ""}" d="{path}"/>')
        if len(places) <= 100:
            body += [
                f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
                f"{tooltip(f'{one.name}: {number(value[0])}, {number(value[1])}')}</circle>"
                for (x, y), value in zip(places, one.points, strict=True)
            ]
    legend = [(_colour(one, index), one.name) for index, one in enumerate(series) if one.name]
    return drawn.draw(body, legend)


def scatter(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    diagonal: bool = False,
    subtitle: str = "",
) -> str:
    """A cloud of points; `diagonal` draws the line on which both are equal."""
    drawn = frame(
        title,
        [x for one in series for x, _ in one.points],
        [y for one in series for _, y in one.points],
        x_label=x_label,
        y_label=y_label,
        from_zero_x=True,
        subtitle=subtitle,
    )
    body = []
    if diagonal:
        top = min(drawn.x.high, drawn.y.high)
        x0, y0, x1, y1 = drawn.x(0), drawn.y(0), drawn.x(top), drawn.y(top)
        body.append(f'<path class="ideal" d="M{x0:.1f} {y0:.1f} L{x1:.1f} {y1:.1f}"/>')
    for index, one in enumerate(series):
        style = _colour(one, index)
        step = max(1, len(one.points) * len(series) // MAX_DOTS)
        # One path of round dots: an element for each would make a picture of thousands of lines.
        dots = "".join(f"M{drawn.x(x):.1f} {drawn.y(y):.1f}h0" for x, y in one.points[::step])
        body.append(f'<path class="{style}" {_DOTS} d="{dots}"/>')
    legend = [(_colour(one, index), one.name) for index, one in enumerate(series) if one.name]
    return drawn.draw(body, legend)


def bars(
    title: str,
    groups: Mapping[str, Mapping[str, float]],
    *,
    y_label: str,
    log_y: bool = False,
    subtitle: str = "",
) -> str:
    """Bars side by side: `groups[name on the axis][name in the legend]` is a height."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    drawn = frame(
        title,
        [0, len(groups)],
        [height for group in groups.values() for height in group.values()],
        x_label="",
        y_label=y_label,
        log_y=log_y,
        subtitle=subtitle,
    )
    x = Scale(0, max(len(groups), 1), drawn.x.start, drawn.x.end)
    width = (x(1) - x(0)) * 0.72 / max(len(names), 1)
    floor = drawn.y.start
    body = []
    for place, (label, group) in enumerate(groups.items()):
        for name, height in group.items():
            index = names.index(name)
            left = x(place + 0.5) + (index - len(names) / 2) * width
            top = min(drawn.y(height), floor - 1)
            body.append(
                f'<rect class="bar c{index % COLOURS}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{max(width - 2, 1):.1f}" height="{floor - top:.1f}" rx="2">'
                f"{tooltip(f'{label}, {name}: {number(height)}')}</rect>"
            )
    legend = [(f"c{index % COLOURS}", name) for index, name in enumerate(names)] if len(names) > 1 else []
    # The x scale of the frame is in places, so that names stand in their middle.
    ticks = [(place + 0.5, label) for place, label in enumerate(groups)]
    return _with_x(drawn, x).draw(body, legend, x_names=ticks)


def _band(drawn: Frame, band: Band) -> str:
    left, right = drawn.x(band.start), drawn.x(band.end)
    return (
        f'<rect class="band" x="{left:.1f}" y="{drawn.y.end:.1f}" width="{max(right - left, 2):.1f}" '
        f'height="{drawn.y.start - drawn.y.end:.1f}">{tooltip(band.name)}</rect>'
    )


def _with_x(drawn: Frame, x: Scale) -> Frame:
    return Frame(drawn.title, x, drawn.y, drawn.x_label, drawn.y_label, drawn.subtitle)


def _colour(series: Series, index: int) -> str:
    return f"c{(index if series.colour is None else series.colour) % COLOURS}"
