"""`python -m harness check RUN`: read a run's recorded facts again and judge them."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.checkers.fairness import fairness
from harness.checkers.registry import run_checks, verdict_of
from harness.checkers.result import CheckResult, Verdict
from harness.history import History, HistoryError, load, load_run

EXIT_CODES: Mapping[Verdict, int] = {"ok": 0, "violated": 1, "unknown": 3}
BAD_USAGE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run, or a history file")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(args: argparse.Namespace) -> int:
    """Check the run and print what was found.

    Returns 0 for verdict ok, 1 violated, 3 unknown, and 2 when there is no history to read.
    """
    try:
        history = load_run(args.run) if args.run.is_dir() else load(args.run)
    except (HistoryError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"cannot check {args.run}: {reason}", file=sys.stderr)
        return BAD_USAGE
    results = run_checks(history)
    verdict = verdict_of(results)
    order = fairness(history.rows)
    if args.json:
        checks = {name: result.to_json() for name, result in results.items()}
        print(json.dumps({"verdict": verdict, "checks": checks, "order": order.to_json()}, indent=2))
    else:
        print(_text(history, results, verdict))
        print(
            f"order: {order.inversions:,} inversions ({order.inversion_ratio:.2%} of all pairs), "
            f"at most {order.max_overtakes:,} overtakes, tau {order.kendall_tau:.3f}, "
            f"Jain {order.jain_index:.3f}; "
            f"wait p50 {order.wait_p50_ms:.3f} ms, p99 {order.wait_p99_ms:.3f} ms"
        )
    return EXIT_CODES[verdict]


def _text(history: History, results: Mapping[str, CheckResult], verdict: Verdict) -> str:
    decisions = "no log of the resource" if history.log is None else f"{len(history.log):,} decisions"
    lines = [f"{len(history.rows):,} arrivals, {decisions}{'' if history.complete else ', cut off'}"]
    width = max(map(len, results))
    for name, result in results.items():
        figures = ", ".join(
            f"{figure.replace('_', ' ')} {value:,}" for figure, value in result.figures.items()
        )
        lines.append(f"{name:{width}}  {result.verdict:8}  {figures}".rstrip())
        lines.extend(f"  - {finding}" for finding in result.findings)
    return "\n".join([*lines, f"verdict: {verdict}"])
