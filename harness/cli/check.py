"""`python -m harness check RUN`: read a run's recorded facts again and judge them."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import exits
from harness.history import History, HistoryError, load, load_run
from harness.judge.checkers.fairness import Fairness, fairness
from harness.judge.checkers.registry import broken_promise, run_checks, verdict_of
from harness.judge.checkers.result import CheckResult, Verdict
from harness.report.ci import check_writable, write_junit
from harness.report.summary import TRUST, judged_with_trust, measured
from harness.report.summary_json import SUMMARY_FILE, NoSummary, read_summary

EXIT_CODES: Mapping[Verdict, int] = {
    "ok": exits.OK,
    "violated": exits.VIOLATED,
    "unknown": exits.UNTRUSTED,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run, or a history file")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the checks to a JUnit file")


def run(args: argparse.Namespace) -> int:
    """Check the run and print what was found.

    Returns 0 for verdict ok, 1 violated, 3 unknown, and 2 when there is no history to read.

    :raises UsageError: the JUnit file cannot be written.
    """
    try:
        history = load_run(args.run) if args.run.is_dir() else load(args.run)
    except (HistoryError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"cannot check {args.run}: {reason}", file=sys.stderr)
        return exits.USAGE
    if args.junit is not None:
        check_writable(args.junit)
    results = run_checks(history)
    if doubts := _doubts(args.run, history):
        results = judged_with_trust(results, doubts)
    verdict = verdict_of(results)
    if args.junit is not None:
        write_junit(args.junit, results)
    order = _order(history)
    if args.json:
        checks = {name: result.to_json() for name, result in results.items()}
        print(
            json.dumps({"verdict": verdict, "checks": checks, "order": order and order.to_json()}, indent=2)
        )
    else:
        print(_text(history, results, verdict))
        print(
            "order: cannot be told from such times"
            if order is None
            else f"order: {order.inversions:,} inversions ({order.inversion_ratio:.2%} of all pairs), "
            f"at most {order.max_overtakes:,} overtakes, tau {order.kendall_tau:.3f}, "
            f"Jain {order.jain_index:.3f}; "
            f"wait p50 {order.wait_p50_ms:.3f} ms, p99 {order.wait_p99_ms:.3f} ms"
        )
    return EXIT_CODES[verdict]


def _order(history: History) -> Fairness | None:
    """`None` where times are so far apart that no float holds the difference."""
    try:
        return fairness(history.rows)
    except OverflowError:
        return None


def _doubts(run: Path, history: History) -> Sequence[str]:
    """What the run itself said against its generator and its servers, which no history tells."""
    if not (run / SUMMARY_FILE).exists():
        return ()
    try:
        summary = read_summary(run)
    except NoSummary as error:
        return [f"{error}: what the run said against itself is not known"]
    trust = summary.checks.get(TRUST)
    if doubts := [*summary.doubts, *(trust.findings if trust and trust.verdict != "ok" else ())]:
        return list(dict.fromkeys(doubts))
    told, found = summary.arrivals.offered, len(measured(history.rows, summary.config))
    if told != found:
        return [f"{SUMMARY_FILE} counts {told:,} arrivals, the history {found:,}: they are not of one run"]
    kind = history.config.get("kind", summary.config.kind)
    if kind != summary.config.kind:
        return [f"{SUMMARY_FILE} says that the locks were {summary.config.kind}, the history {kind}"]
    return ()


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
        lines.extend(f"  (could not see: {phrase})" for phrase in result.unseen)
    if sentence := broken_promise(results):
        lines.append(sentence)
    return "\n".join([*lines, f"verdict: {verdict}"])
