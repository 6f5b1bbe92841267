"""Keeps what a benchmark measured: JSON with every figure, and a table to read."""

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


def save_and_show(name: str, outcome: Mapping[str, Any], lines: Iterable[str], folder: Path) -> None:
    """`save`, and print where it is and what it says."""
    data, table = save(name, outcome, lines, folder)
    print(data, table, table.read_text(), sep="\n")
