"""The parts of a report page: shell, figures, findings, tables, charts. Self-contained: no network."""

import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_ASSETS = Path(__file__).parent / "assets"
_STYLE_OF_A_CHART = re.compile(r"<style>.*?</style>", re.DOTALL)


def asset(name: str) -> str:
    """A file that goes into the page."""
    return (_ASSETS / name).read_text()


def page(title: str, body: str, *, scripts: Iterable[str] = ()) -> str:
    """A whole document."""
    code = "".join(f"<script>\n{asset(name)}</script>\n" for name in scripts)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{asset('report.css')}</style>\n{body}\n{code}</html>\n"
    )


def figure(name: str, label: str, value: str, exact: object) -> str:
    """A number to be seen from afar; `exact` is for programs that read the page."""
    return (
        f'<div class="figure"><b data-figure="{html.escape(name)}" data-value="{html.escape(str(exact))}">'
        f"{html.escape(value)}</b><span>{html.escape(label)}</span></div>"
    )


def figures(entries: Iterable[tuple[str, str, str, object]]) -> str:
    return f'<div class="figures">{"".join(figure(*entry) for entry in entries)}</div>'


def findings(entries: Iterable[tuple[str, str]]) -> str:
    """Sentences, each with its tone: `good`, `bad`, `doubt` or none."""
    lines = "".join(f'<li class="{tone}">{html.escape(text)}</li>' for tone, text in entries)
    return f'<ul class="findings">{lines}</ul>' if lines else ""


def charts(pictures: Mapping[str, str]) -> str:
    """Pictures side by side where there is room; `pictures[name]` is SVG.

    Their style sheets are one and the same, so that the page needs it once.
    """
    drawn = []
    for place, (name, picture) in enumerate(pictures.items()):
        # Inside HTML no name space is needed, and a page that names no address cannot load any.
        picture = picture.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
        if place:
            picture = _STYLE_OF_A_CHART.sub("", picture, count=1)
        drawn.append(f'<figure data-chart="{html.escape(name)}">{picture}</figure>')
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""


class Toned(NamedTuple):
    """A cell that is set off: `good` or `bad`."""

    text: str
    tone: str


def table(
    head: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: bool = False, stacked: bool = False
) -> str:
    """A table; with `numbers` all columns but the first are set flush right.

    A narrow page sets numbers below the name of their row; with `stacked`, the first two columns side by side
    and the others below them.
    """
    mark = ' class="n"' if numbers else ""
    kind = " stacked" if stacked else " numbers" if numbers else ""
    lines = [f'<div class="scroll{kind}"><table>']
    cells = "".join(f"<th{mark if place else ''}>{html.escape(cell)}</th>" for place, cell in enumerate(head))
    if cells:
        lines.append(f"<tr>{cells}</tr>")
    for row in rows:
        cells = "".join(_cell(cell, mark if place else "") for place, cell in enumerate(row))
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table></div>"])


def _cell(cell: object, mark: str) -> str:
    if isinstance(cell, Toned):
        return f'<td class="{cell.tone}">{words(cell.text)}</td>'
    return f"<td{mark}>{words(cell)}</td>"


def words(value: object) -> str:
    """Any value of a summary, escaped."""
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {entry}" for name, entry in value.items())
    elif isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return html.escape("" if value is None else str(value)).replace("\n", "<br>")


def section(title: str, *parts: str) -> str:
    body = "\n".join(part for part in parts if part)
    return f"<h2>{html.escape(title)}</h2>\n{body}" if body else ""


def verdict(word: str) -> str:
    style = word if word in ("ok", "violated") else "unknown"
    escaped = html.escape(word)
    return f'<span class="verdict {style}" data-figure="verdict" data-value="{escaped}">{escaped}</span>'
