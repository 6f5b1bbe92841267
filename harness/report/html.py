"""`report.html`: one self-contained page about a run, made from its folder alone."""

import html
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.durations import format_duration
from harness.report.summary_json import read_summary
from harness.report.terminal import LATENCY_NAMES, facts_of

HTML_FILE = "report.html"

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
.verdict {{ padding: .1em .6em; border-radius: .3em; color: #fff; }}
.ok {{ background: #1a7f37; }} .violated {{ background: #cf222e; }} .unknown {{ background: #9a6700; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ padding: .3rem .6rem; text-align: left; vertical-align: top; }}
tr {{ border-bottom: 1px solid var(--line); }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
code {{ font-size: .9em; overflow-wrap: anywhere; }}
</style>
<h1>{heading} <span class="verdict {verdict}">{verdict}</span></h1>
<p><code>{command}</code><br>{started}</p>
<h2>Result</h2>
{facts}
<h2>Latency</h2>
{latencies}
<h2>Checks</h2>
{checks}
<h2>Configuration</h2>
{config}
<h2>Environment</h2>
{environment}
</html>
"""


def write_html(run_dir: Path) -> Path:
    """Write the page of the run in `run_dir` and return its path.

    :raises NoSummary: the folder holds no finished run.
    :raises OSError: the page cannot be written.
    """
    path = run_dir / HTML_FILE
    path.write_text(_page(read_summary(run_dir)))
    return path


def _page(summary: Mapping[str, Any]) -> str:
    config = summary["config"]
    heading = (
        f"{summary['backend']['name']}: {config['contenders']:,} contenders, {config['rate']:g} arrivals/s"
    )
    return _PAGE.format(
        title=html.escape(f"{heading}, verdict {summary['verdict']}"),
        heading=html.escape(heading),
        verdict=html.escape(summary["verdict"]),
        command=html.escape(shlex.join(summary["command"])),
        started=html.escape(summary["started"]),
        facts=_table((), facts_of(summary)),
        latencies=_table(
            ("", "p50", "p90", "p99", "p99.9", "max", "count"),
            (
                [
                    name,
                    *(format_duration(figures[q] / 1e3) for q in ("p50", "p90", "p99", "p999", "max")),
                    count,
                ]
                for key, name in LATENCY_NAMES.items()
                if (count := f"{(figures := summary['latency_ms'][key])['count']:,}") != "0"
            ),
            numbers=True,
        ),
        checks=_table(
            ("check", "verdict", "findings"),
            (
                [name, check["verdict"], "\n".join(check["findings"])]
                for name, check in summary["checks"].items()
            ),
        ),
        config=_table((), config.items()),
        environment=_table((), summary["environment"].items()),
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: bool = False) -> str:
    mark = ' class="n"' if numbers else ""
    lines = ["<table>"]
    cells = "".join(f"<th{mark if index else ''}>{html.escape(cell)}" for index, cell in enumerate(head))
    if cells:
        lines.append(f"<tr>{cells}")
    for row in rows:
        cells = "".join(f"<td{mark if index else ''}>{_cell(cell)}" for index, cell in enumerate(row))
        lines.append(f"<tr>{cells}")
    return "\n".join([*lines, "</table>"])


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {entry}" for name, entry in value.items())
    elif isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return html.escape("" if value is None else str(value)).replace("\n", "<br>")
