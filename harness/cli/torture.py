"""`python -m harness torture --backend B|all --minutes M --seed S`, or `--soak D`."""

import argparse
import json
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.text import Text

from harness import exits
from harness.cli import torture_soak
from harness.cli.flags import flag, positive_int
from harness.durations import parse_positive_duration
from harness.judge.checkers import Verdict, worst
from harness.judge.statistics import rule_of_three
from harness.lab.participant import Forkserver, open_forkserver
from harness.lab.track import NeverHappened
from harness.load.run import make_folder
from harness.report import environment
from harness.report.terminal import make_console
from harness.servers.catalogue import SHARED
from harness.servers.errors import ServerError
from harness.torture.plan import plan_round
from harness.torture.result import RoundResult
from harness.torture.round import torture_round
from harness.torture.sometimes import not_visited, rare_paths

SCHEMA = "asyncdlock-torture/1"
SUMMARY_FILE = "summary.json"
ALL = "all"
_EXITS: dict[Verdict, int] = {"ok": exits.OK, "violated": exits.VIOLATED, "unknown": exits.UNTRUSTED}
_SHOWN = 5


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of minutes") from None
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} must be more than 0")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "which lock server; with all they take turns, round by round (default all)"
    parser.add_argument("--backend", choices=[*SHARED, ALL], default=ALL, help=about)
    about = "keep beginning rounds for this long, at least one (default 2)"
    flag(parser, "--minutes", _minutes, about, default=2.0, metavar="M")
    about = "this many rounds instead, however long they take"
    flag(parser, "--rounds", positive_int, about, metavar="N")
    about = (
        "how long a round is under load; the same seed means the same faults only in rounds of one length "
    )
    flag(parser, "--round", parse_positive_duration, f"{about}(default 15s)", default=15.0, metavar="D")
    about = "seed of the first round; each further round has the next one (default 1)"
    parser.add_argument("--seed", type=int, default=1, metavar="S", help=about)
    about = "no faults: a quiet load on one backend for this long, such as 1h, to see whether anything grows"
    flag(parser, "--soak", parse_positive_duration, about, metavar="D")
    about = "off: the resource compares nothing, and the torture shows what that costs (default on)"
    parser.add_argument("--fence", choices=["on", "off"], default="on", help=about)
    about = "where its folder goes (default runs)"
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help=about)


async def run(args: argparse.Namespace) -> int:
    """0 when nothing was violated, 1 when something was, 3 when a round could not be run or judged.

    :raises UsageError: the folder cannot be made, or a soak of all backends was asked for.
    """
    console = make_console()
    folder = make_folder(args.out, f"{'soak' if args.soak else 'torture'}-{args.backend}")
    if args.soak:
        soaked = await torture_soak.run(args, console, folder)
        console.print(f"verdict   {soaked or 'unknown'}")
        console.print(f"evidence  {folder}", markup=False, soft_wrap=True)
        return _EXITS[soaked or "unknown"]
    backends = list(SHARED) if args.backend == ALL else [args.backend]
    results: list[RoundResult] = []
    troubles: list[str] = []
    until = time.monotonic() + 60 * args.minutes
    number = 0
    try:
        async with open_forkserver(folder / "processes.log") as forkserver:
            while number < args.rounds if args.rounds else not number or time.monotonic() < until:
                backend, seed = backends[number % len(backends)], args.seed + number
                number += 1
                command = _command(args, backend, seed)
                try:
                    result = await _round(args, backend, seed, forkserver, folder)
                except (ServerError, NeverHappened, aiohttp.ClientError, OSError, TimeoutError) as error:
                    why = " ".join(f"{type(error).__name__}: {error}".split())
                    troubles.append(f"{backend}, seed {seed} could not be run: {why}")
                    console.print(Text(troubles[-1], style="yellow"))
                    continue
                results.append(result)
                _print_round(console, result, command)
    finally:
        verdict = _verdict(results, troubles)
        _write(folder, args, results, troubles, verdict)
    _print_all(console, results, verdict, folder)
    return _EXITS[verdict]


async def _round(
    args: argparse.Namespace, backend: str, seed: int, forkserver: Forkserver, folder: Path
) -> RoundResult:
    plan = plan_round(seed, backend, args.round)
    return await torture_round(plan, forkserver, folder / f"{backend}-{seed}", fence=args.fence)


def _verdict(results: Sequence[RoundResult], troubles: Sequence[str]) -> Verdict:
    untried: list[Verdict] = ["unknown"] if troubles else []
    return worst([*(result.verdict for result in results), *untried])


def _command(args: argparse.Namespace, backend: str, seed: int) -> str:
    words = ["python", "-m", "harness", "torture", "--backend", backend, "--rounds", "1", "--seed", str(seed)]
    words += ["--round", f"{args.round:g}s"]
    return shlex.join([*words, *(["--fence", "off"] if args.fence == "off" else [])])


def _write(
    folder: Path,
    args: argparse.Namespace,
    results: Sequence[RoundResult],
    troubles: Sequence[str],
    verdict: Verdict,
) -> None:
    summary = {
        "schema": SCHEMA,
        "command": shlex.join(["python", "-m", "harness", "torture", *args.argv]),
        "seed": args.seed,
        "verdict": verdict,
        "rounds": [
            result.to_json() | {"command": _command(args, result.plan.backend, result.plan.seed)}
            for result in results
        ],
        "not_run": list(troubles),
        "not_visited": {backend: not_visited(backend, seen) for backend, seen in _visited(results).items()},
        "environment": environment.describe(),
    }
    (folder / SUMMARY_FILE).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")


def _visited(results: Sequence[RoundResult]) -> dict[str, Counter[str]]:
    visited: dict[str, Counter[str]] = {}
    for result in results:
        visited.setdefault(result.plan.backend, Counter()).update(result.visited)
    return visited


def _print_round(console: Console, result: RoundResult, command: str) -> None:
    style = {"ok": "green", "violated": "bold red", "unknown": "yellow"}[result.verdict]
    console.print(
        Text.assemble(
            f"{result.plan.backend}, seed {result.plan.seed}: ",
            (result.verdict, style),
            f"; {result.grants:,} grants, {result.acknowledged:,} updates acknowledged, {result.refused:,} "
            f"refused, {result.faults.total()} faults",
        )
    )
    for finding in result.findings[:_SHOWN]:
        console.print(Text(f"    {finding}", style=style))
    if len(result.findings) > _SHOWN:
        console.print(f"    and {len(result.findings) - _SHOWN} more, in summary.json")
    if result.verdict != "ok":
        console.print(Text.assemble(("    repeat    ", "dim"), command))


def _print_all(console: Console, results: Sequence[RoundResult], verdict: Verdict, folder: Path) -> None:
    console.print()
    for backend, seen in _visited(results).items():
        console.print(Text(f"{backend}: rare paths that were visited", style="bold"))
        for path in rare_paths(backend):
            console.print(f"  {seen[path]:>7,}  {path}" if seen[path] else f"    never  {path}")
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
    console.print()
    console.print(f"faults    {', '.join(f'{count} × {name}' for name, count in faults.most_common())}")
    failed = [failure for result in results for failure in result.failures]
    if failed:
        console.print(f"of the faults {len(failed)} did not come about: {failed[0]}", markup=False)
    rounds, verdicts = len(results), Counter(result.verdict for result in results)
    if rounds == verdicts["ok"] > 0:
        console.print(
            f"{rounds} rounds without a violation are a bound and no proof: at 95 % the probability that "
            f"a round goes wrong is below {rule_of_three(rounds):.1%} (3/n)."
        )
    others = ", ".join(f"{count} {one}" for one, count in verdicts.items() if one != "ok")
    console.print(f"verdict   {verdict}{f': of {rounds} rounds {others}' if others else ''}")
    console.print(f"evidence  {folder}", markup=False, soft_wrap=True)
