"""`python -m harness experiment list | NAME | NUMBER | all [--quick] [--runs N] [--out DIR] [--seed N]`."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from rich.console import Console

from asyncdlock import LockError
from harness.config import UsageError
from harness.experiments import storm
from harness.lab.evidence import exit_code, repeat_command, write_evidence
from harness.lab.lab import Lab
from harness.lab.outcome import FAILED, NOTHING_RAN, SKIPPED, Case, ExperimentResult
from harness.lab.present import print_all, print_list, print_opening, print_outcome
from harness.lab.registry import Experiment, experiments, find
from harness.lab.track import NeverHappened
from harness.load.run import make_folder
from harness.report.html_experiment import write_experiment_html
from harness.report.terminal import make_console
from harness.servers.errors import ServerError, ServerMissing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("which", metavar="list|NAME|NUMBER|all", help="what to run; list shows what there is")
    parser.add_argument("--quick", action="store_true", help="a shorter form, each under a minute")
    parser.add_argument(
        "--runs",
        type=int,
        metavar="N",
        help=f"fault-injected runs of the storm (default {storm.RUNS}, with --quick {storm.QUICK_RUNS})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="where its folder goes (default runs)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed gives the same schedule (default 1)"
    )


async def run(args: argparse.Namespace) -> int:
    """0 when all came out as predicted, 1 when one did not, 3 when one could not be run at all.

    :raises UsageError: there is no such experiment, it has no runs to count, or the folder cannot be made.
    """
    console = make_console()
    if args.which == "list":
        print_list(console, experiments().values())
        return 0
    chosen = list(experiments().values()) if args.which == "all" else [find(args.which)]
    _check_runs(args.runs, chosen)
    results = []
    for experiment in chosen:
        runs = args.runs if experiment.has_runs else None
        outcome, folder = await perform(
            experiment, console, out=args.out, quick=args.quick, seed=args.seed, runs=runs
        )
        results.append((experiment, outcome, folder))
    if len(results) > 1:
        print_all(console, results)
    return _worst([exit_code(outcome) for _, outcome, _ in results])


def _check_runs(runs: int | None, chosen: Sequence[Experiment]) -> None:
    if runs is None:
        return
    if runs < 1:
        raise UsageError(f"--runs is the number of runs, at least 1, not {runs}")
    if not any(experiment.has_runs for experiment in chosen):
        having = ", ".join(one.name for one in experiments().values() if one.has_runs)
        raise UsageError(f"{chosen[0].name} does not repeat itself: --runs is for {having}")


async def perform(
    experiment: Experiment, console: Console, *, out: Path, quick: bool, seed: int, runs: int | None = None
) -> tuple[ExperimentResult, Path]:
    """Run one experiment, print what it found and write its folder.

    A cancellation ends every process that was started; what was written until then stays.

    :raises UsageError: the folder cannot be made.
    """
    print_opening(console, experiment)
    folder = make_folder(out, f"experiment-{experiment.name}")
    began, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    with console.status("starting") as status:

        def say(text: str) -> None:
            if console.is_terminal:
                status.update(text)
            else:
                console.print(f"  … {text}", style="dim", markup=False)

        async with Lab(folder, quick=quick, seed=seed, say=say, runs=runs) as lab:
            outcome = await _outcome(experiment, lab)
    write_evidence(experiment, lab, outcome, started=started, seconds=time.monotonic() - began)
    write_experiment_html(folder)
    print_outcome(console, outcome, folder=folder, command=repeat_command(experiment, lab))
    return outcome, folder


async def _outcome(experiment: Experiment, lab: Lab) -> ExperimentResult:
    """What it found; where it could not even begin, why not."""
    try:
        found = await experiment.run(lab)
        return found if found.ran else replace(found, answer=NOTHING_RAN)
    except ServerMissing as missing:
        observed, reason = SKIPPED, str(missing)
    except (ServerError, LockError, NeverHappened, aiohttp.ClientError, OSError, TimeoutError) as error:
        observed, reason = FAILED, " ".join(f"{type(error).__name__}: {error}".split())
    return ExperimentResult(
        cases=[Case(name=experiment.name, expected="an answer", observed=observed, reason=reason)],
        answer=f"It could not be run: {reason}",
    )


def _worst(codes: list[int]) -> int:
    return 1 if 1 in codes else max(codes, default=0)
