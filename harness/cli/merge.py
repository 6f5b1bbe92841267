"""`python -m harness merge RUN…`: makes one run of the shares that several generators made."""

import argparse
from pathlib import Path

from harness.config import RunConfig
from harness.load.merging import merge_shares
from harness.load.run import make_folder
from harness.load.share import read_share
from harness.report.terminal import make_console, print_summary, print_verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the folder of a share")
    parser.add_argument(
        "--out", default=RunConfig().out, metavar="DIR", help="folder for the whole run's own folder"
    )
    parser.add_argument("--quiet", action="store_true", help="print one line: the verdict and the folder")


def run(args: argparse.Namespace) -> int:
    """Merge, judge, print; the exit code is that of the whole run.

    :raises UsageError: they are not shares of one run.
    """
    label = read_share(args.runs[0]).config.label
    folder = make_folder(Path(args.out), f"{label}-merged")
    try:
        summary = merge_shares(args.runs, folder, command=["python", "-m", "harness", "merge", *args.argv])
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    (print_verdict if args.quiet else print_summary)(make_console(), summary, str(folder))
    return summary.exit_code
