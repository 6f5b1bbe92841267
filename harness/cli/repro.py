"""`python -m harness repro list | NAME | all [--quick] [--out DIR] [--seed N]`."""

import argparse
import json
import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from harness.lab import Lab
from harness.lab.track import NeverHappened
from harness.load.run import make_folder
from harness.report import environment
from harness.report.terminal import make_console
from harness.repro.finding import Finding
from harness.repro.registry import Reproduction, find, reproductions
from harness.servers.errors import ServerMissing

SCHEMA = "asyncdlock-repro/1"
SUMMARY_FILE = "summary.json"
EXIT_OK, EXIT_OTHERWISE, EXIT_NOTHING_RAN = 0, 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("which", metavar="list|NAME|all", help="what to measure; list shows what there is")
    parser.add_argument("--quick", action="store_true", help="fewer trials, each under a minute")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="where its folder goes (default runs)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed gives the same schedule (default 1)"
    )


async def run(args: argparse.Namespace) -> int:
    """0 when ours came out as claimed, 1 when not, 3 when it could not be run.

    :raises UsageError: there is no such reproduction, or the folder cannot be made.
    """
    console = make_console()
    if args.which == "list":
        for one in reproductions().values():
            console.print(Text.assemble((f"{one.name:<18}", "bold"), one.about))
            console.print(Text(f"{'':<18}published: {one.published}", style="dim"))
        return EXIT_OK
    chosen = list(reproductions().values()) if args.which == "all" else [find(args.which)]
    codes = [await _perform(one, console, out=args.out, quick=args.quick, seed=args.seed) for one in chosen]
    return EXIT_OTHERWISE if EXIT_OTHERWISE in codes else max(codes)


async def _perform(one: Reproduction, console: Console, *, out: Path, quick: bool, seed: int) -> int:
    console.print()
    console.print(Text.assemble((f"{one.name}  ", "bold"), one.about))
    console.print(Text.assemble(("published  ", "dim"), f"{one.published} ({one.source})"))
    console.print(Text.assemble(("we claim   ", "dim"), one.claim))
    folder = make_folder(out, f"repro-{one.name}")

    def say(text: str) -> None:
        console.print(f"  … {text}", style="dim", markup=False)

    try:
        async with Lab(folder, quick=quick, seed=seed, say=say) as lab:
            finding = await one.run(lab)
    except (ServerMissing, NeverHappened) as error:
        console.print(Text(f"could not be run: {' '.join(str(error).split())}", style="bold yellow"))
        return EXIT_NOTHING_RAN
    words = ["python", "-m", "harness", "repro", one.name, *(["--quick"] if quick else [])]
    command = shlex.join([*words, "--seed", str(seed)])
    summary = _summary(one, finding, lab, command)
    (folder / SUMMARY_FILE).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    _print(console, finding, folder, command)
    return EXIT_OK if finding.holds else EXIT_OTHERWISE


def _summary(one: Reproduction, finding: Finding, lab: Lab, command: str) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "name": one.name,
        "published": one.published,
        "source": one.source,
        "claim": one.claim,
        "holds": finding.holds,
        "figures": [figure.to_json() for figure in finding.figures],
        "differs": list(finding.differs),
        "command": command,
        "quick": lab.quick,
        "seed": lab.seed,
        "schedule": list(lab.schedule),
        "environment": environment.describe(),
    }


def _print(console: Console, finding: Finding, folder: Path, command: str) -> None:
    for number, figure in enumerate(finding.figures):
        mark = "" if figure.holds else "  NOT as claimed"
        console.print(
            Text.assemble(
                ("ours       " if not number else "           ", "dim"),
                (f"{figure.name}: ", "bold"),
                str(figure),
                (mark, "bold red"),
            )
        )
    for number, sentence in enumerate(finding.differs):
        console.print(Text.assemble(("differs    " if not number else "           ", "dim"), sentence))
    verdict = ("as claimed", "bold green") if finding.holds else ("NOT as claimed", "bold red")
    console.print(Text.assemble(("verdict    ", "dim"), verdict))
    console.print(Text.assemble(("evidence   ", "dim"), str(folder)))
    console.print(Text.assemble(("repeat     ", "dim"), command))
