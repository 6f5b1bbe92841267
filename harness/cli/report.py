"""`python -m harness report RUN`: prints a finished run again."""

import argparse
from pathlib import Path

from harness.report.html import write_html
from harness.report.summary_json import read_summary
from harness.report.terminal import make_console, print_summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--html", action="store_true", help="write report.html again as well")


def run(args: argparse.Namespace) -> int:
    """Print the summary; the exit code is the one that the run itself had.

    :raises NoSummary: the folder holds no finished run.
    """
    summary = read_summary(args.run)
    if args.html:
        write_html(args.run)
    print_summary(make_console(), summary, str(args.run))
    return summary.exit_code
