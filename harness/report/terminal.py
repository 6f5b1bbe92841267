"""The summary of a run, for reading in a terminal."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import exits
from harness.durations import format_duration
from harness.judge.checkers.fairness import Order
from harness.judge.checkers.registry import broken_promise
from harness.judge.checkers.result import CheckResult
from harness.report.model import FaultFigures, Latencies, Latency, MachineFigures, StageFigures, Summary
from harness.report.summary import TRUST

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


def make_console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error; wide and plain when it is not a terminal."""
    plain = not (sys.stderr if stderr else sys.stdout).isatty()
    return Console(highlight=False, soft_wrap=plain, width=_PLAIN_WIDTH if plain else None, stderr=stderr)


def print_summary(console: Console, summary: Summary, folder: str) -> None:
    """The whole result of a run, for reading."""
    console.print()
    console.print(_headline(summary))
    console.print()
    console.print(_latencies(summary.latency_ms))
    console.print()
    facts = [*facts_of(summary), ("run", folder)]
    page = Path(folder) / "report.html"
    if not console.is_terminal:
        facts.append(("report", str(page)))
        for name, value in facts:
            console.print(f"{name:>12}  {value}", markup=False)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    table.add_row("report", Text(str(page), style=f"link {page.resolve().as_uri()}"))
    console.print(table)


def print_verdict(console: Console, summary: Summary, folder: str) -> None:
    """One line, for scripts and for `--quiet`: what the exit code says, in words, and the folder."""
    console.print(f"{in_a_line(summary)} {folder}", markup=False, soft_wrap=True)


def in_a_line(summary: Summary) -> str:
    """`ok`, or what is wrong: `failed: acquire.p99<1us, was 4.82 ms`."""
    if summary.interrupted:
        return f"interrupted: {summary.verdict} until then"
    if summary.config.is_share and summary.exit_code == exits.OK:
        index, count = summary.config.share
        return f"share {index + 1} of {count}"
    match summary.exit_code:
        case exits.VIOLATED:
            return f"violated: {broken_promise(summary.checks) or _first_finding(summary, 'violated')}"
        case exits.UNTRUSTED if summary.doubts:
            return f"untrusted: {'; '.join(summary.doubts)}"
        case exits.UNTRUSTED:
            return f"unknown: {_first_finding(summary, 'unknown')}"
        case exits.THRESHOLD:
            failed = [judgement for judgement in summary.thresholds if not judgement.passed]
            return "failed: " + "; ".join(
                f"{judgement.threshold}, {f'was {judgement.was}' if judgement.was else 'was not measured'}"
                for judgement in failed
            )
    return summary.verdict


def _first_finding(summary: Summary, verdict: str) -> str:
    found = [
        f"{name}: {check.findings[0] if check.findings else 'no finding was recorded'}"
        for name, check in summary.checks.items()
        if check.verdict == verdict
    ]
    return found[0] if found else "nothing tells why"


_PROMISES = {
    "exclusive": "no two holders at once",
    "shared": "no reader beside a writer",
    "semaphore": "no more holders at once than permits",
}


def _headline(summary: Summary) -> Text:
    verdict = summary.verdict
    text = Text(f"verdict {verdict}", style=_VERDICT_STYLES.get(verdict, ""))
    violated = [name for name, check in summary.checks.items() if check.verdict == "violated"]
    if violated:
        text.append(f": {', '.join(violated)}")
        if sentence := broken_promise(summary.checks):
            text.append(f" ({sentence})", style="not bold")
    elif verdict == "ok":
        promise = _PROMISES[summary.config.kind.partition(":")[0]]
        text.append(f": {promise}, no two writers accepted, no fence ran backwards", style="not bold")
        if summary.arrivals.timed_out:
            share = summary.arrivals.timed_out / max(summary.arrivals.offered, 1)
            text.append(f"; {share:.1%} of the arrivals timed out", style="not bold yellow")
    elif verdict == "unknown" and not summary.interrupted:
        text.append(f": {in_a_line(summary).partition(': ')[2]}", style="not bold")
    if summary.interrupted:
        text.append(" (interrupted: of what had happened until then)", style="not bold yellow")
    return text


def shown(latency: Latency, quantile: str) -> str:
    """A percentile for reading; one that is only a lower bound says so."""
    return f"{'≥ ' if quantile in latency.bounds else ''}{format_duration(getattr(latency, quantile) / 1e3)}"


def _latencies(latencies: Latencies) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("latency", style="dim", no_wrap=True)
    for name in ("p50", "p90", "p99", "p99.9", "max", "count"):
        table.add_column(name, justify="right", no_wrap=True)
    for key, name in LATENCY_NAMES.items():
        latency: Latency = getattr(latencies, key)
        for title, figures in ((name, latency), ("  of those granted", latency.granted)):
            if figures is not None and figures.count:
                row = [
                    shown(figures, quantile)
                    if isinstance(figures, Latency)
                    else format_duration(getattr(figures, quantile) / 1e3)
                    for quantile in ("p50", "p90", "p99", "p999", "max")
                ]
                table.add_row(title, *row, f"{figures.count:,}")
    return table


def facts_of(summary: Summary) -> list[tuple[str, str]]:
    """Name and sentence of everything that is worth telling, the important last."""
    arrivals = summary.arrivals
    counts = [f"{arrivals.offered:,} offered", f"{arrivals.acquired:,} acquired"]
    counts += [
        f"{getattr(arrivals, name):,} {name.replace('_', ' ')}"
        for name in ("timed_out", "failed", "lost", "abandoned", "dropped")
        if getattr(arrivals, name)
    ]
    gave_up = summary.latency_ms.arrival_to_grant.bounds
    bounds = "; ≥ marks what those who gave up waited at least" if gave_up else ""
    facts = [
        ("arrivals", f"{', '.join(counts)}; backlog at most {arrivals.backlog_max:,}{bounds}"),
        ("throughput", _throughput(summary)),
        ("order", _order(summary.order)),
        (
            "resource",
            f"{summary.resource.accepted:,} writes accepted, "
            f"{summary.resource.stale_rejections:,} stale ones refused",
        ),
    ]
    product = [str(said)] if (said := summary.environment.get("lock_server")) else []
    if summary.backend.commands_per_acquire is not None:
        product.append(f"{summary.backend.commands_per_acquire:.2f} commands per acquire")
    if product:
        facts.append(("lock server", ", ".join(product)))
    cpu = ", ".join(f"{share:.0%}" for share in summary.client.cpu)
    facts.append(("generator", f"{cpu or '?'} of a core"))
    facts += [("generator", machine_in_words(machine)) for machine in summary.certificate.machines]
    facts += [("stage", _stage(stage)) for stage in summary.stages]
    facts += [("fault", fault_in_words(fault)) for fault in summary.faults]
    facts += [("finding", finding) for finding in _findings(summary.checks)]
    facts += [("error", f"{count:,} × {error}") for error, count in summary.errors.items()]
    facts += [("do not trust", doubt) for doubt in summary.doubts]
    facts += [("threshold", judgement.sentence) for judgement in summary.thresholds]
    facts.append(("bounded by", f"{summary.bound.name}: {summary.bound.because}"))
    if summary.bound.next:
        facts.append(("try next", "; ".join(summary.bound.next)))
    return facts


def fault_in_words(fault: FaultFigures) -> str:
    """`server crashed (redis 127.0.0.1:6379) at 5 s for 2.1 s`."""
    lasted = None if fault.until_s is None else fault.until_s - fault.at_s
    length = " until the end" if lasted is None else f" for {format_duration(lasted)}" if lasted else ""
    return f"{fault.label} at {format_duration(fault.at_s)}{length}"


def machine_in_words(machine: MachineFigures) -> str:
    """One share of a run, in a line."""
    name = f"share {machine.share}{f' on {machine.host}' if machine.host else ''}"
    if machine.missing:
        return f"{name} is missing: {machine.missing}"
    clock = "clock not compared"
    if machine.start_offset_ms is not None and machine.offset_bound_ms is not None:
        clock = f"began {machine.start_offset_ms:+.3f} ms (± {machine.offset_bound_ms:.3f} ms) from the first"
    return (
        f"{name}: {machine.offered:,} offered, {machine.acquired:,} acquired, {machine.accepted:,} accepted; "
        f"late p99 {format_duration(machine.lag_p99_ms / 1e3)}; {clock}"
    )


def _stage(stage: StageFigures) -> str:
    waits = stage.arrival_to_grant_ms
    text = (
        f"{stage.rate:g}/s from {format_duration(stage.from_s)} to {format_duration(stage.to_s)}: "
        f"{stage.acquired:,} of {stage.offered:,} acquired, {stage.throughput_per_s:,.1f}/s"
    )
    if not stage.acquired:
        return text
    p50, p99 = format_duration(waits.p50 / 1e3), format_duration(waits.p99 / 1e3)
    return f"{text}, arrival to grant p50 {p50}, p99 {p99}"


def _throughput(summary: Summary) -> str:
    window = summary.duration_s - summary.drain_s
    text = f"{summary.throughput_per_s:,.1f} locked sections/s over {window:.1f} s"
    if summary.drained:
        text += f", then {summary.drained:,} more in {summary.drain_s:.1f} s without arrivals"
    return text


def _order(order: Order | None) -> str:
    if order is None:
        return "not measured"
    most = order.max_overtakes
    overtaken = f"the unluckiest arrival overtaken {most:,} times" if most else "nobody overtaken"
    return (
        f"{order.inversion_ratio:.2%} of pairs granted out of order, {overtaken} "
        f"(Kendall tau {order.kendall_tau:.3f}, Jain index {order.jain_index:.3f})"
    )


def _findings(checks: Mapping[str, CheckResult], most: int = 3) -> Sequence[str]:
    found = []
    for name, check in checks.items():
        if check.verdict == "ok" or name == TRUST:  # doubts have a line of their own
            continue
        found += [f"{name}: {finding}" for finding in check.findings[:most]]
        if len(check.findings) > most:
            found.append(f"{name}: and {len(check.findings) - most:,} more, see report.html")
    return found
