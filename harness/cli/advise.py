"""`python -m harness advise --measure 60s`: which TTL fits this host, from the pauses that it has."""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict

from rich.table import Table

from harness.cli.flags import flag
from harness.durations import format_duration, parse_duration, parse_positive_duration
from harness.judge.lease_length import LeaseAdvice, LeaseRisk, advise
from harness.load.stalls import measure_stalls
from harness.report.terminal import make_console

_SHORTEST = 1.0


def _long_enough(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < _SHORTEST:
        raise ValueError(f"{text!r} is too short to see a pause: measure for 1s at least, better for an hour")
    return seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "how long to watch this host; rare pauses need long (default 60s)"
    flag(parser, "--measure", _long_enough, about, default=60.0, metavar="D")
    about = "how long a lock is held at a time, for the probability (default 1s)"
    flag(parser, "--hold", parse_positive_duration, about, default=1.0, metavar="D")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


async def run(args: argparse.Namespace) -> int:
    """Measure, and print what each TTL would mean; returns 0."""
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(measure_stalls(args.measure))
        await asyncio.sleep(0)  # it has begun when we say so
        print(f"harness: watching this host for {format_duration(args.measure)}", file=sys.stderr)
    seen = watching.result()
    advice = advise(seen.stalls, seen.seconds, hold=args.hold)
    if args.json:
        print(json.dumps(asdict(advice)))
        return 0
    console = make_console()
    console.print(
        f"{len(seen.stalls):,} pauses in {format_duration(seen.seconds)}, "
        f"the longest {format_duration(advice.longest)}"
    )
    console.print(_table(advice))
    for sentence in sentences(advice):
        console.print(sentence)
    return 0


def sentences(advice: LeaseAdvice) -> list[str]:
    """The recommendation, and how far it can be trusted."""
    watched = format_duration(advice.seconds)
    if advice.recommended is None:
        return [
            f"No TTL up to {format_duration(advice.risks[-1].ttl)} has room for pauses of "
            f"{format_duration(advice.longest)}: find out what stops this host first."
        ]
    risk = next(risk for risk in advice.risks if risk.ttl == advice.recommended)
    return [
        f"Recommended: a TTL of {format_duration(risk.ttl)} or longer. It survives pauses of "
        f"{format_duration(risk.survives)}, at least three times the longest that was seen.",
        f"No pause of that length in {watched} is a bound, not zero: there may be up to "
        f"{_number(risk.per_hour_at_most)} in an hour (95 %). Longer measurements lower it; "
        "no TTL makes it zero, so fence.",
    ]


def _table(advice: LeaseAdvice) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    held = f"P in {format_duration(advice.hold)} held"
    for name in ("TTL", "survives a pause of", "longer ones", "per hour held", held, "a dead holder blocks"):
        table.add_column(name, justify="right")
    for risk in advice.risks:
        table.add_row(
            format_duration(risk.ttl),
            format_duration(risk.survives),
            f"{risk.outlived:,}",
            _bounded(risk, risk.per_hour, risk.per_hour_at_most),
            _bounded(risk, risk.probability, risk.probability_at_most),
            f"up to {format_duration(risk.blocked)}",
        )
    return table


def _bounded(risk: LeaseRisk, seen: float, most: float) -> str:
    return f"{_number(seen)} (at most {_number(most)})" if risk.outlived else f"at most {_number(most)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
