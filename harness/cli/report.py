"""`python -m harness report RUN`: prints a finished run again, as a page, or as a trace."""

import argparse
import sys
import webbrowser
from pathlib import Path

from harness.config import RunConfig
from harness.report.html import HTML_FILE, write_html
from harness.report.perfetto import write_perfetto
from harness.report.summary_json import NoSummary, read_summary
from harness.report.terminal import make_console, print_summary

LATEST = "latest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=f"the folder of a run, or {LATEST!r}")
    parser.add_argument("--html", action="store_true", help="write report.html again as well")
    parser.add_argument("--open", action="store_true", help="show report.html in a browser")
    parser.add_argument(
        "--perfetto", action="store_true", help="also write the run as a trace for https://ui.perfetto.dev"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(RunConfig().out),
        metavar="DIR",
        help=f"where {LATEST!r} looks for runs",
    )


def run(args: argparse.Namespace) -> int:
    """Print the summary; the exit code is the one that the run itself had.

    :raises NoSummary: the folder holds no finished run.
    :raises UsageError: `--perfetto`, and its package is not installed.
    """
    folder = latest(args.out) if args.run == LATEST else Path(args.run)
    summary = read_summary(folder)
    page = folder / HTML_FILE
    if args.html or (args.open and not page.is_file()):
        write_html(folder)
    trace = write_perfetto(folder) if args.perfetto else None
    if trace is not None:
        print(f"harness: the trace is in {trace}; show it at https://ui.perfetto.dev")
    print_summary(make_console(), summary, str(folder))
    if args.open and not webbrowser.open(page.resolve().as_uri()):
        print(f"harness: no browser was found here: open {page} yourself", file=sys.stderr)
    return summary.exit_code


def latest(out: Path) -> Path:
    """The folder of the newest run in `out`; their names begin with the time.

    :raises NoSummary: there is none.
    """
    for folder in sorted((path.parent for path in out.glob("*/summary.json")), reverse=True):
        try:
            read_summary(folder)
        except NoSummary:
            continue  # an experiment's, or half written
        return folder
    raise NoSummary(f"{str(out)!r} holds no finished run: run one, or name its folder with --out")
