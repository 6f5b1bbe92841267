"""`python -m harness compare A B`: what differs between runs, what does not, and where it cannot tell."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from harness import exits
from harness.config import UsageError
from harness.judge.comparison import Comparison, compare_runs
from harness.judge.thresholds import Threshold
from harness.report.model import Summary
from harness.report.summary_json import read_summary
from harness.report.terminal import make_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `compare`."""
    for name, which in (("before", "A"), ("after", "B")):
        parser.add_argument(
            name,
            metavar=which,
            help="the folder of a run, the last folder of a --repeat, or several separated by commas",
        )
    parser.add_argument(
        "--threshold",
        dest="thresholds",
        action="append",
        default=[],
        metavar="EXPR",
        help="fail with exit code 4 unless this holds for every run of B; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison. Exit code 0, or 4 when a threshold failed: a difference is no failure.

    :raises NoSummary: a folder holds no finished run.
    :raises UsageError: the two sides cannot be paired, or a threshold is none.
    """
    try:
        thresholds = [Threshold.parse(text) for text in args.thresholds]
    except ValueError as error:
        raise UsageError(str(error)) from None
    before, after = _runs(args.before), _runs(args.after)
    console = make_console()
    for side, runs in (("A", before), ("B", after)):
        for summary in runs:
            if summary.verdict != "ok":
                console.print(f"{side}: a run with verdict {summary.verdict}, started {summary.started}")
    if len(before) != len(after):
        raise UsageError(
            f"{len(before)} runs cannot be paired with {len(after)}: name as many on either side"
        )
    console.print(comparison_table(compare_runs(before, after)))
    failed = False
    for threshold in thresholds:
        for summary in after:
            judgement = threshold.judge(summary)
            failed = failed or not judgement.passed
            console.print(judgement.sentence, markup=False)
    return exits.THRESHOLD if failed else exits.OK


def _runs(names: str) -> list[Summary]:
    """Those that are named; the last of several that `--repeat` made stands for all of them."""
    found = []
    for folder in map(Path, names.split(",")):
        summary = read_summary(folder)
        if summary.repeats is None:
            found.append(summary)
        else:
            found += [read_summary(folder.parent / name) for name in summary.repeats.folders]
    return found


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Figure by figure: both sides, their ratio, and the answer."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("figure", "A", "B", "B / A", "answer"):
        table.add_column(name, justify="left" if name in ("figure", "answer") else "right", no_wrap=True)
    for found in comparisons:
        ratio = "" if found.ratio is None else f"{found.ratio:.2f}"
        if found.interval is not None:
            ratio += f" ({found.interval[0]:.2f} to {found.interval[1]:.2f})"
        table.add_row(found.metric, found.before, found.after, ratio, found.answer)
    return table
