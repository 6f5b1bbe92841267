"""Where and on what a benchmark ran: the machine, the commit, and whether others disturbed it.

The load average remembers the benchmark before this one for minutes. So what others do is looked at for a
second, while this one does nothing.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.report import environment

_LOOK = 1.0
_QUIET = 0.5
"""Processors that others may use: beyond it the figures are partly theirs."""


def describe(**more: Any) -> dict[str, Any]:
    """To be asked before anything is measured; takes a second."""
    others = {"commit": _commit(), "busy": _busy()}
    return environment.describe() | others | more


def is_noisy(where: Mapping[str, Any]) -> bool:
    """Whether other programs were busy when the benchmark began."""
    return bool(where["busy"] > _QUIET)


def in_words(where: Mapping[str, Any]) -> str:
    """For the head of a table."""
    noise = ", **not a quiet machine: trust ratios, if anything**" if is_noisy(where) else ""
    return (
        f"Commit {where.get('commit') or 'unknown'}, {where['cpus']} cores, Python {where['python']}, "
        f"{where['busy']:.1f} of them busy before the first run{noise}."
    )


def _busy() -> float:
    """How many processors others keep busy."""
    return round(psutil.cpu_percent(interval=_LOOK) / 100 * (os.cpu_count() or 1), 2)


def _commit() -> str | None:
    """`None` outside a clone; with a mark when files differ from it, but for results of other benchmarks."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)results")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()
