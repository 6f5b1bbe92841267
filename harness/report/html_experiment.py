"""`report.html` of an experiment: its answer, its cases and its charts, made from its folder alone."""

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.report.html_page import charts, findings, page, section, table, verdict

HTML_FILE = "report.html"


def write_experiment_html(folder: Path) -> Path:
    """Write the page and return its path. Every `.svg` of the folder itself becomes a chart.

    :raises OSError, ValueError: there is no summary to read, or the page cannot be written.
    """
    summary = json.loads((folder / "summary.json").read_text())
    pictures = {path.stem: path.read_text() for path in sorted(folder.glob("*.svg"))}
    path = folder / HTML_FILE
    path.write_text(_page(summary, pictures))
    return path


def _page(summary: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    number, name = summary["experiment"]["number"], summary["experiment"]["name"]
    word = "ok" if summary["as_predicted"] else "not as predicted"
    body = [
        f"<h1>Experiment {number}: {html.escape(name)} {verdict(word)}</h1>",
        f'<p class="dim">{html.escape(summary["started"])}, {summary["duration_s"]:.0f} s</p>',
        f"<pre>{html.escape(summary['command'])}</pre>",
        f"<p><b>Question.</b> {html.escape(summary['question'])}</p>",
        f"<p><b>Expected.</b> {html.escape(summary['expectation'])}</p>",
        findings(_findings(summary)),
        section("Answer", markdown(summary["answer"])),
        section("Charts", charts(pictures)),
        section("Cases", _cases(summary)),
        section("Environment", table((), summary["environment"].items())),
    ]
    return page(f"Experiment {number}: {name}", "\n".join(body))


def _findings(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    ran = [case for case in summary["cases"] if case["observed"] != "skipped"]
    good = sum(case["as_predicted"] for case in ran)
    yield (
        "good" if good == len(ran) and ran else "bad",
        f"{good} of {len(ran)} cases came out as predicted.",
    )
    for case in summary["cases"]:
        if case["observed"] == "skipped":
            yield "doubt", f"{case['name']} was skipped: {case['reason']}"
        elif not case["as_predicted"]:
            reason = case["reason"] or "; ".join(case["findings"])
            yield "bad", f"{case['name']}: expected {case['expected']}, observed {case['observed']}. {reason}"


def _cases(summary: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(name for case in summary["cases"] for name in case["facts"]))
    rows = (
        [case["name"], case["expected"], case["observed"], *(_fact(case["facts"].get(n)) for n in names)]
        for case in summary["cases"]
    )
    return f'<div class="wide">{table(["case", "expected", "observed", *names], rows)}</div>'


def _fact(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value)


def markdown(text: str) -> str:
    """The little Markdown that answers use: paragraphs, lists, bold and code."""
    blocks = []
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        if lines and all(line.startswith("- ") for line in lines):
            blocks.append("<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>")
        elif lines:
            blocks.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "\n".join(blocks)


def _inline(text: str) -> str:
    escaped = html.escape(text)
    escaped = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escaped)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escaped)
