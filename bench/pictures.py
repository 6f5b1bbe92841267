"""`python -m bench.pictures`: the pictures of the README, each of a real run that is made for it.

docs/images/run.svg is what the first command prints; docs/images/report.png is the top of the page that
the second one leaves, as Chromium shows it.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from harness import exits
from harness.cli.report import latest
from harness.report.html import HTML_FILE
from harness.report.summary_json import read_summary
from harness.report.terminal import print_summary

IMAGES = Path(__file__).parents[1] / "docs/images"
RUN = "python -m harness --contenders 1000 --rate 500"
VIOLATION = "python -m harness --fence off --ttl 1s --pause 3s --duration 5s"
_SIZE = (1000, 700)
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def _run(command: str, scratch: Path, *, code: int) -> Path:
    """The folder of a run of this command. It must end with that code: a busy machine gives no picture."""
    print(command)
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, *shlex.split(command)[1:]],
        cwd=scratch,
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != code:
        sys.exit(f"bench.pictures: exit code {done.returncode} instead of {code}")
    folder = latest(scratch / "runs")
    if doubts := read_summary(folder).doubts:
        sys.exit(f"bench.pictures: {'; '.join(doubts)}")
    return folder


def draw_terminal(folder: Path, svg: Path) -> None:
    """What the run printed, as a terminal; it loads no font from elsewhere."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, force_terminal=True, width=100, file=nowhere, highlight=False)
        print_summary(console, read_summary(folder), f"runs/{folder.name}")
    drawn = console.export_svg(title=RUN, unique_id="run")
    svg.write_text(re.sub(r"@font-face \{.*?\}\n", "", drawn, flags=re.DOTALL), "utf-8")


def photograph(page: Path, png: Path) -> None:
    """The top of the page, once its scripts have drawn it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("bench.pictures: no Chromium on PATH: install it (Debian: apt-get install chromium)")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"]
    size = f"--window-size={_SIZE[0]},{_SIZE[1]}"
    subprocess.run(
        [chromium, *flags, size, f"--screenshot={png}", page.resolve().as_uri()],
        check=True,
        capture_output=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pictures", description=__doc__)
    parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="asyncdlock-pictures-") as scratch:
        draw_terminal(_run(RUN, Path(scratch, "run"), code=exits.OK), IMAGES / "run.svg")
        photograph(
            _run(VIOLATION, Path(scratch, "violation"), code=exits.VIOLATED) / HTML_FILE,
            IMAGES / "report.png",
        )


if __name__ == "__main__":
    main()
