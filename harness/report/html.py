"""`report.html`: one self-contained page about a run, made from its folder alone."""

import html
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.history import HISTORY_FILE, History, load, load_run
from harness.judge.checkers.registry import broken_promise, questions
from harness.judge.checkers.result import CheckResult
from harness.report.html_charts import bands_of, charts_of, holders_of
from harness.report.html_page import Toned, charts, figures, findings, page, section, table, verdict
from harness.report.model import Latency, Summary
from harness.report.summary import TRUST
from harness.report.summary_json import read_summary
from harness.report.terminal import LATENCY_NAMES, facts_of, shown
from harness.report.units import certificate_with_units, described, settings_with_units
from harness.report.violations import violations_of

HTML_FILE = "report.html"
CHARTS = "charts"
_TONES = {"ok": "good", "violated": "bad", "unknown": "doubt"}

_TIMELINE = """<div id="timeline"><canvas tabindex="0" aria-label="who held the key when"></canvas>
<div class="told">Point at a holder. Wheel or drag to zoom, double click for the whole run.</div>
<p class="dim keys"><button type="button">whole run</button>
<span style="background:var(--hold)"></span>holds
<span style="background:var(--frozen)"></span>frozen on purpose
<span style="background:var(--bad)"></span>refused as stale, or ✕ where a promise was broken
<span style="background:var(--doubt)"></span>waiting
<span style="background:var(--bad);opacity:.25"></span>a fault, on purpose</p></div>"""


def write_html(run_dir: Path) -> Path:
    """Write the page of the run in `run_dir`, its charts as files beside it, and return its path.

    :raises NoSummary: the folder holds no finished run.
    :raises HistoryError: its history cannot be read.
    :raises OSError: the page cannot be written.
    """
    summary = read_summary(run_dir)
    history = run_dir / HISTORY_FILE
    found = _history(run_dir, summary) if history.is_file() else History()
    pictures = charts_of(found.rows, summary)
    if pictures:
        folder = run_dir / CHARTS
        folder.mkdir(exist_ok=True)
        for name, picture in pictures.items():
            (folder / f"{name}.svg").write_text(picture)
    path = run_dir / HTML_FILE
    path.write_text(_page(summary, found, pictures))
    return path


def _history(run_dir: Path, summary: Summary) -> History:
    """What the resource decided is wanted only to show who broke a promise."""
    return load_run(run_dir) if summary.verdict == "violated" else load(run_dir / HISTORY_FILE)


def _page(summary: Summary, history: History, pictures: Mapping[str, str]) -> str:
    config = summary.config
    heading = f"{summary.backend.name}: {config.contenders:,} contenders, {config.rate:g} arrivals/s"
    body = [
        f"<h1>{html.escape(heading)} {verdict(summary.verdict)}</h1>",
        f'<p class="dim">{html.escape(summary.started)}</p>',
        f"<p>To repeat it:</p><pre>{html.escape(shlex.join(summary.command))}</pre>",
        findings(_findings(summary)),
        figures(_figures(summary)),
        section("Charts", charts(pictures)),
        section("Who held the lock", *_timeline(history, summary)),
        section("Latency", _latencies(summary)),
        section("Result", table((), facts_of(summary))),
        section("Checks", _checks(summary)),
        section("The generator's certificate", table((), certificate_with_units(summary.certificate))),
        section("Configuration", table((), settings_with_units(config))),
        section("Environment", table((), described(summary.environment))),
    ]
    title = f"{heading}, verdict {summary.verdict}"
    return page(title, "\n".join(body), scripts=["timeline.js"] if history.rows else [])


def _findings(summary: Summary) -> Iterator[tuple[str, str]]:
    """Verdict first, then whatever a reader must know before believing a number."""
    if sentence := broken_promise(summary.checks):
        yield "bad", sentence
    for name, check in summary.checks.items():
        tone = _TONES[check.verdict]
        if tone != "good" and name != TRUST:
            for finding in check.findings[:5] or ["no finding was recorded"]:
                yield tone, f"{name}: {finding}"
    if summary.verdict == "ok":
        yield (
            "good",
            f"{summary.resource.accepted:,} writes were accepted, no two of them of two holders at "
            f"once; {summary.resource.stale_rejections:,} stale ones were refused.",
        )
    for doubt in summary.doubts:
        yield "doubt", f"Do not trust this run: {doubt}."
    bound = summary.bound
    yield "", f"Bounded by {bound.name}: {bound.because}."
    if bound.next:
        yield "", f"Try next: {'; '.join(bound.next)}."
    for judgement in summary.thresholds:
        yield "good" if judgement.passed else "bad", judgement.sentence


def _figures(summary: Summary) -> Iterator[tuple[str, str, str, object]]:
    arrivals, waits, order = summary.arrivals, summary.latency_ms.arrival_to_grant, summary.order
    rate = summary.throughput_per_s
    yield "throughput_per_s", "locked sections per second", f"{rate:,.0f}", rate
    yield (
        "acquired",
        f"acquired of {arrivals.offered:,}",
        f"{arrivals.acquired:,}",
        arrivals.acquired,
    )
    for name, label in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")):
        value = getattr(waits, name)
        yield f"arrival_to_grant_{name}", f"{label} arrival to grant", shown(waits, name), value
    yield "timed_out", "gave up waiting", f"{arrivals.timed_out:,}", arrivals.timed_out
    if order is not None:
        ratio = order.inversion_ratio
        yield "inversion_ratio", "pairs out of order", f"{ratio:.1%}", ratio
    stale = summary.resource.stale_rejections
    yield "stale_rejections", "stale writes refused", f"{stale:,}", stale


def _timeline(history: History, summary: Summary) -> list[str]:
    violations = violations_of(history, summary)
    data = holders_of(history.rows, bands_of(summary), violations)
    if not data["rows"]:
        return []
    wanted = "where the first promise was broken: it is shown first" if violations else "the most wanted one"
    note = f"Key {data['key']}, {wanted}."
    if data["left_out"]:
        first = data["before"] + 1
        note += f" {len(data['rows']):,} holders from number {first:,} on; {data['left_out']:,} are left out."
    # A "<" in a key could end the script element, whatever stands around it.
    encoded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return [
        f'<p class="dim">{html.escape(note)}</p>',
        _TIMELINE,
        f'<script type="application/json" id="timeline-data">{encoded}</script>',
    ]


def _latencies(summary: Summary) -> str:
    rows = []
    for key, name in LATENCY_NAMES.items():
        found: Latency = getattr(summary.latency_ms, key)
        if found.count:
            quantiles = [shown(found, quantile) for quantile in ("p50", "p90", "p99", "p999", "max")]
            rows.append([name, *quantiles, f"{found.count:,}"])
    return table(("", "p50", "p90", "p99", "p99.9", "max", "count"), rows, numbers=True)


def _checks(summary: Summary) -> str:
    asks = {**questions(), TRUST: "The load generator, the lock server and the resource did their part."}
    return table(
        ("check", "verdict", "what it asks", "findings"),
        (
            [name, Toned(check.verdict, _TONES[check.verdict]), asks.get(name, ""), "\n".join(_said(check))]
            for name, check in summary.checks.items()
        ),
        stacked=True,
    )


def _said(check: CheckResult) -> list[str]:
    return [*check.findings, *(f"(could not see: {phrase})" for phrase in check.unseen)]
