"""Where and on what a benchmark ran: the machine, the commit, the load, and whether others disturbed it."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.report import environment

_QUIET = 0.5
"""Processors that others may use: beyond it the figures are partly theirs."""


def describe(**more: Any) -> dict[str, Any]:
    """To be asked before anything is measured."""
    return environment.describe() | {"commit": _commit(), **more}


def is_noisy(where: Mapping[str, Any]) -> bool:
    """Whether other programs were busy when the benchmark began."""
    return bool(where["load_average"][0] > _QUIET)


def in_words(where: Mapping[str, Any]) -> str:
    """For the head of a table."""
    noise = ", **not a quiet machine: trust ratios, if anything**" if is_noisy(where) else ""
    return (
        f"Commit {where.get('commit') or 'unknown'}, {where['cpus']} cores, Python {where['python']}, "
        f"load {where['load_average'][0]:.1f} before the first run{noise}."
    )


def _commit() -> str | None:
    """`None` outside a clone; with a mark when files differ from it."""
    here = Path(__file__).parent
    words = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
