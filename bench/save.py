"""Keeps what a benchmark measured: JSON with every figure, and a table to read."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.report.compact_json import compact_json

RESULTS = Path(__file__).parent / "results"


def save(name: str, outcome: Mapping[str, Any], lines: Iterable[str], folder: Path) -> list[Path]:
    """Write `NAME.json` and `NAME.md` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    data, table = folder / f"{name}.json", folder / f"{name}.md"
    data.write_text(compact_json(dict(outcome)) + "\n")
    table.write_text("\n".join(lines) + "\n")
    return [data, table]


def add_output(parser: argparse.ArgumentParser) -> None:
    """The flags of every benchmark that say where its results go: nowhere, unless told."""
    parser.add_argument("--publish", action="store_true", help="write the results into bench/results")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write them into this folder instead")


def folder_for(options: argparse.Namespace) -> Path | None:
    """Where the results go; `None`: they are only shown."""
    folder: Path | None = options.out
    return folder or (RESULTS if options.publish else None)


def show(name: str, outcome: Mapping[str, Any], lines: Iterable[str], options: argparse.Namespace) -> None:
    """Print the table, and write it where the flags say."""
    lines = list(lines)
    folder = folder_for(options)
    if folder is not None:
        print(*save(name, outcome, lines, folder), sep="\n")
    print(*lines, sep="\n")
