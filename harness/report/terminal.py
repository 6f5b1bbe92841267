"""The summary of a run, for reading in a terminal."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.durations import format_duration

_PLAIN_WIDTH = 120
_VERDICT_STYLES = {"ok": "bold green", "violated": "bold red", "unknown": "bold yellow"}
LATENCY_NAMES = {
    "arrival_to_grant": "arrival → grant",
    "acquire": "acquire",
    "hold": "hold",
    "write": "write",
    "release": "release",
    "schedule_lag": "schedule lag",
}


def make_console() -> Console:
    """Standard output; wide and plain when it is not a terminal."""
    plain = not sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=plain, width=_PLAIN_WIDTH if plain else None)


def print_summary(console: Console, summary: Mapping[str, Any], folder: str) -> None:
    """The whole result of a run, for reading."""
    console.print()
    console.print(_headline(summary))
    console.print()
    console.print(_latencies(summary["latency_ms"]))
    console.print()
    facts = [*facts_of(summary), ("run", folder)]
    if not console.is_terminal:
        for name, value in facts:
            console.print(f"{name:>12}  {value}", markup=False)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    console.print(table)


def print_verdict(console: Console, summary: Mapping[str, Any], folder: str) -> None:
    """One line, for scripts and for `--quiet`."""
    console.print(f"{summary['verdict']} {folder}")


def _headline(summary: Mapping[str, Any]) -> Text:
    verdict = summary["verdict"]
    text = Text(f"verdict {verdict}", style=_VERDICT_STYLES.get(verdict, ""))
    violated = [name for name, check in summary["checks"].items() if check["verdict"] == "violated"]
    if violated:
        text.append(f": {', '.join(violated)}")
    elif verdict == "ok":
        text.append(
            ": no two writers were accepted, no fence ran backwards",
            style="not bold",
        )
    if summary["interrupted"]:
        text.append(" (interrupted: of what had happened until then)", style="not bold yellow")
    return text


def _latencies(latency_ms: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("latency", style="dim", no_wrap=True)
    for name in ("p50", "p90", "p99", "p99.9", "max", "count"):
        table.add_column(name, justify="right", no_wrap=True)
    for key, name in LATENCY_NAMES.items():
        figures = latency_ms[key]
        if figures["count"]:
            shown = [format_duration(figures[q] / 1e3) for q in ("p50", "p90", "p99", "p999", "max")]
            table.add_row(name, *shown, f"{figures['count']:,}")
    return table


def facts_of(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and sentence of everything that is worth telling, the important last."""
    arrivals, order = summary["arrivals"], summary["order"]
    counts = [f"{arrivals['offered']:,} offered", f"{arrivals['acquired']:,} acquired"]
    counts += [
        f"{arrivals[name]:,} {name.replace('_', ' ')}"
        for name in ("timed_out", "failed", "lost", "abandoned", "dropped")
        if arrivals.get(name)
    ]
    unheard = "; the latencies are of those granted" if arrivals["timed_out"] else ""
    facts = [
        ("arrivals", f"{', '.join(counts)}; backlog at most {arrivals['backlog_max']:,}{unheard}"),
        (
            "throughput",
            f"{summary['throughput_per_s']:,.1f} locked sections/s over {summary['duration_s']:.1f} s",
        ),
        ("order", _order(order)),
        (
            "resource",
            f"{summary['resource']['accepted']:,} writes accepted, "
            f"{summary['resource']['stale_rejections']:,} stale ones refused",
        ),
    ]
    if summary["backend"]["commands_per_acquire"] is not None:
        facts.append(
            ("lock server", f"{summary['backend']['commands_per_acquire']:.2f} commands per acquire")
        )
    cpu = ", ".join(f"{share:.0%}" for share in summary["client"]["cpu"])
    facts.append(("generator", f"{cpu or '?'} of a core"))
    facts += [("finding", finding) for finding in _findings(summary["checks"])]
    facts += [("error", f"{count:,} × {error}") for error, count in summary["errors"].items()]
    facts += [("do not trust", doubt) for doubt in summary["doubts"]]
    facts += [("threshold", judgement["sentence"]) for judgement in summary["thresholds"]]
    facts.append(("bounded by", f"{summary['bound']['name']}: {summary['bound']['because']}"))
    if summary["bound"]["next"]:
        facts.append(("try next", "; ".join(summary["bound"]["next"])))
    return facts


def _order(order: Mapping[str, Any]) -> str:
    ratio, tau = order.get("inversion_ratio"), order.get("kendall_tau")
    if ratio is None:
        return "not measured"
    text = (
        f"{ratio:.2%} of pairs granted out of order, one arrival overtaken {order['max_overtakes']:,} times"
    )
    return text + ("" if tau is None else f" (Kendall tau {tau:.3f}, Jain index {order['jain_index']:.3f})")


def _findings(checks: Mapping[str, Mapping[str, Any]], most: int = 3) -> Sequence[str]:
    found = []
    for name, check in checks.items():
        if check["verdict"] == "ok":
            continue
        findings = check["findings"]
        found += [f"{name}: {finding}" for finding in findings[:most]]
        if len(findings) > most:
            found.append(f"{name}: and {len(findings) - most:,} more, see report.html")
    return found
