"""`python -m harness torture --soak D`: what a soak prints and writes."""

import argparse
import json
import shlex
from pathlib import Path

import aiohttp
from redis.exceptions import RedisError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.config import UsageError
from harness.durations import format_duration
from harness.judge.checkers import Verdict
from harness.lab.participant import open_forkserver
from harness.lab.track import NeverHappened
from harness.report import environment
from harness.servers.errors import ServerError
from harness.torture.soak import SoakResult, Trend, soak

SCHEMA = "asyncdlock-soak/1"
_STYLES = {"ok": "green", "violated": "bold red", "unknown": "yellow"}
_WORDS = {"ok": "flat", "violated": "rises", "unknown": "unknown"}


async def run(args: argparse.Namespace, console: Console, folder: Path) -> Verdict | None:
    """The verdict; `None` when it could not be run. One backend, no faults.

    :raises UsageError: more than one backend.
    """
    if args.backend == "all":
        raise UsageError("--soak is of one backend: name it with --backend")
    try:
        async with open_forkserver(folder / "processes.log") as forkserver:
            result = await soak(args.backend, args.soak, args.seed, forkserver, folder)
    except (ServerError, NeverHappened, aiohttp.ClientError, RedisError, OSError, TimeoutError) as error:
        console.print(Text(f"could not be run: {' '.join(str(error).split())}", style="yellow"))
        return None
    _write(folder, args, result)
    _print(console, args, result)
    return result.verdict


def _write(folder: Path, args: argparse.Namespace, result: SoakResult) -> None:
    summary = {
        "schema": SCHEMA,
        "command": shlex.join(["python", "-m", "harness", "torture", *args.argv]),
        "backend": args.backend,
        "seconds": result.seconds,
        "verdict": result.verdict,
        "findings": result.findings,
        "cycles": result.cycles,
        "failed": result.failed,
        "trends": [_row(trend) for trend in result.trends()],
        "series": {
            figure.name: list(zip(series.times, series.values, strict=True))
            for figure, series in result.series.items()
        },
        "environment": environment.describe(),
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")


def _row(trend: Trend) -> dict[str, object]:
    slope = trend.slope
    return {
        "of": trend.figure.of,
        "what": trend.figure.what,
        "unit": trend.figure.unit,
        "mean": trend.mean,
        "slope_per_hour": slope and slope.slope,
        "interval": slope and [slope.low, slope.high],
        "allowed_per_hour": trend.allowed,
        "verdict": trend.verdict,
    }


def _print(console: Console, args: argparse.Namespace, result: SoakResult) -> None:
    length = format_duration(result.seconds)
    console.print(f"{args.backend}: {length}, {result.cycles:,} cycles, {result.failed:,} failed")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for column in ("mean", "per hour", "95 %", "allowed"):
        table.add_column(column, justify="right")
    table.add_column("")
    for trend in result.trends():
        slope, unit = trend.slope, trend.figure.unit
        between = f"{slope.low:+.2f} to {slope.high:+.2f}" if slope else "too few samples"
        table.add_row(
            trend.figure.name,
            f"{trend.mean:,.2f} {unit}".rstrip(),
            f"{slope.slope:+.2f}" if slope else "",
            between,
            f"{trend.allowed:.2f}",
            Text(_WORDS[trend.verdict], style=_STYLES[trend.verdict]),
        )
    console.print(table)
    for finding in result.findings:
        console.print(Text(f"    {finding}", style="bold red"))
    if result.verdict == "unknown":
        console.print("Where the interval reaches beyond what is allowed, the soak was too short to tell.")
