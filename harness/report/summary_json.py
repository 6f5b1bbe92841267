"""Reads and writes the `summary.json` of a run folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUMMARY_FILE = "summary.json"


class NoSummary(ValueError):
    """The folder is not that of a finished run; the message says so in one sentence."""


def write_summary(folder: Path, summary: Mapping[str, Any]) -> Path:
    """:raises OSError: the folder cannot be written to."""
    path = folder / SUMMARY_FILE
    path.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return path


def read_summary(folder: Path) -> dict[str, Any]:
    """:raises NoSummary: there is none, or none that can be read."""
    path = folder / SUMMARY_FILE
    try:
        summary = json.loads(path.read_text())
    except FileNotFoundError:
        raise NoSummary(f"{folder} holds no {SUMMARY_FILE}: name the folder of a finished run") from None
    except (OSError, ValueError) as error:
        raise NoSummary(f"cannot read {path}: {error}") from None
    if not isinstance(summary, dict) or not str(summary.get("schema", "")).startswith("asyncdlock-summary/"):
        raise NoSummary(f"{path} is not the summary of a run")
    return summary
