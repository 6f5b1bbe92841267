"""Writes the outcome of a contest: JSON with every figure, a table to read, a chart."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.claims import CLAIMS, Table
from bench.contest import LONGER_BEYOND
from bench.figures import remark
from bench.save import save
from bench.surroundings import in_words
from harness.report.svg import Scale, text

_COLUMNS = (
    ("sections/s", "sections_per_s", "{:,.0f}"),
    ("wait p50 ms", "wait_p50_ms", "{:.2f}"),
    ("p99 ms", "wait_p99_ms", "{:.1f}"),
    ("max ms", "wait_max_ms", "{:.1f}"),
    ("Jain", "jain", "{:.3f}"),
    ("starved", "starved", "{:.0f}"),
    ("commands", "commands_per_section", "{:.2f}"),
    ("client CPU µs", "client_cpu_us", "{:.1f}"),
    ("server CPU µs", "server_cpu_us", "{:.1f}"),
)
_PANEL, _NAMES, _BAR, _ROW, _TITLE = 560, 230, 240, 20, 40
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#1b1f24}.t{font-size:14px;font-weight:600}.w{font-weight:600}"
    ".ground{fill:#fff}.ours{fill:#2a6fdb}.other{fill:#b0b0b0}.tick{stroke:#d0d7de}.n{fill:#656d76}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117}.ours{fill:#4d8df0}"
    ".other{fill:#6e7681}.tick{stroke:#30363d}.n{fill:#8d96a0}}"
)


def write(outcome: dict[str, Any], folder: Path) -> list[Path]:
    """Write `peers.json`, `peers.md` and `peers.svg` into `folder`."""
    chart = folder / "peers.svg"
    written = save("peers", outcome, markdown(outcome), folder)
    _draw(outcome, chart)
    return [*written, chart]


def markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    """The table to read."""
    where = outcome["environment"]
    yield "# asyncdlock beside its peers"
    yield ""
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']} s, interleaved"
    yield f"`{outcome['command'].strip()}`: {rounds}; longer where over {LONGER_BEYOND} contend."
    yield f"{where['server']}. {in_words(where)} Commands, CPU: per section."
    for place, workloads in outcome["figures"].items():
        if claims := list(_claims(workloads)):
            yield from ("", f"## {place.capitalize()}: what is claimed", "")
            yield "| ratio | measured | bound | the raw limit reaches |"
            yield "|---|---|---|---|"
            yield from claims
        for work, subjects in workloads.items():
            yield from ("", f"## {place.capitalize()}: {work}", "")
            yield "| | " + " | ".join(title for title, _, _ in _COLUMNS) + " |"
            yield "|---|" + "---|" * len(_COLUMNS)
            for name, figures in sorted(subjects.items(), key=lambda item: -item[1]["sections_per_s"]):
                cells = [form.format(figures[key]) for _, key, form in _COLUMNS]
                yield f"| {name}{remark(figures)} | " + " | ".join(cells) + " |"
    if outcome["failed"]:
        yield from ("", "## Could not do the work", "")
        yield from (f"- {what}: {why}" for what, why in outcome["failed"].items())


def _claims(workloads: Mapping[str, Table]) -> Iterator[str]:
    """A line for every claim whose workloads and subjects were part of this run."""
    for claim in CLAIMS:
        try:
            value = claim.value(workloads)
            allowed = "" if claim.allowed is None else f"{claim.allowed(workloads):,.3g}"
        except KeyError:
            continue
        sign = "≤" if claim.at_most else "≥"
        mark = "" if claim.holds(value) else " **missed**"
        yield f"| {claim.text} | {value:,.3g}{mark} | {sign} {claim.bound:g} | {allowed} |"


def _draw(outcome: Mapping[str, Any], path: Path) -> None:
    """Sections per second by subject, one panel per workload, on a logarithmic scale."""
    place, workloads = next(iter(outcome["figures"].items()))
    where = f"{place}; {outcome['environment']['server']}"
    parts = [text(16, 24, f"Critical sections per second, on one logarithmic scale ({where})", "t")]
    rates = [max(one["sections_per_s"], 1.0) for subjects in workloads.values() for one in subjects.values()]
    lowest, highest = (round(math.log10(bound) + by) for bound, by in ((min(rates), -0.5), (max(rates), 0.5)))
    top = next_top = _TITLE
    for number, (work, subjects) in enumerate(workloads.items()):
        column = number % 2
        if column == 0:
            top = next_top
        parts += _panel(work, subjects, _PANEL * column, top, range(lowest, highest + 1))
        next_top = max(next_top, top + _ROW * (len(subjects) + 3))
    size = f"{2 * _PANEL} {next_top}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img"><style>{_STYLE}</style>'
    path.write_text(f'{head}<rect class="ground" width="100%" height="100%"/>{"".join(parts)}</svg>\n')


def _short(number: int) -> str:
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def _panel(work: str, subjects: Table, left: float, top: float, powers: range) -> list[str]:
    """The bars of a workload; `powers` of ten are the ticks of the scale that all panels share."""
    rates = {name: figures["sections_per_s"] for name, figures in subjects.items()}
    length = Scale(10 ** powers[0], 10 ** powers[-1], 0, _BAR, log=True)
    parts = [text(left + _NAMES, top + 14, work, "w")]
    bottom = top + _ROW * (len(rates) + 1)
    for power in powers:
        x = left + _NAMES + length(10**power)
        parts += [
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{top + _ROW}" y2="{bottom}"/>',
            text(x, bottom + 12, _short(10**power), "n", "middle"),
        ]
    for row, (name, rate) in enumerate(sorted(rates.items(), key=lambda item: -item[1]), 1):
        y, width = top + _ROW * row, length(rate)
        kind = "ours" if name.startswith("asyncdlock") else "other"
        parts += [
            text(left + _NAMES - 6, y + 14, name, "", "end"),
            f'<rect class="{kind}" x="{left + _NAMES}" y="{y + 3}" width="{width:.1f}" height="14"/>',
            text(left + _NAMES + width + 5, y + 14, f"{rate:,.0f}/s"),
        ]
    return parts
