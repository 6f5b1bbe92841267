"""Runs Spin on a model: every state that it can reach is visited."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
TOOLS = ("spin", "gcc")
_MOST_SECONDS = 240
_DEPTH = 1_000_000


class Checked(NamedTuple):
    """What the search found."""

    states: int
    violated: str
    """The invariant that does not hold; empty when all do."""
    trace: str
    """The steps that lead there."""


def missing() -> list[str]:
    """The tools that are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def check(model: str, *defines: str, live: str = "") -> Checked:
    """Search `model` with these names defined; `live` names a property that must hold of every fair run.

    :raises RuntimeError: the model cannot be compiled, or the search did not come to its end.
    """
    settings = [f"-D{define}" for define in (*defines, *(["LIVE"] if live else []))]
    source = str(FOLDER / f"{model}.pml")
    with tempfile.TemporaryDirectory(prefix="spin-") as folder:
        _run(["spin", "-a", *settings, source], folder)
        kind = ["-DNFAIR=4"] if live else ["-DSAFETY"]
        _run(["gcc", "-w", "-O1", "-DCOLLAPSE", *kind, "-o", "pan", "pan.c"], folder)
        said = _run(["./pan", f"-m{_DEPTH}", *(["-a", "-f"] if live else ["-E"])], folder)
        stored = re.search(r"([0-9]+) states, stored", said)
        errors = re.search(r"errors: ([0-9]+)", said)
        if stored is None or errors is None or "max search depth too small" in said:
            raise RuntimeError(f"the search did not come to its end:\n{said}")
        if errors[1] == "0":
            return Checked(int(stored[1]), "", "")
        broken = re.search(r"assertion violated (\w+)", said)
        if broken is None and "acceptance cycle" not in said:
            raise RuntimeError(f"the model itself is wrong:\n{said}")
        trail = next(Path(folder).glob("*.trail"))
        trace = _run(["spin", "-k", trail.name, "-p", "-g", *settings, source], folder)
        return Checked(int(stored[1]), live if broken is None else broken[1], trace)


def _run(command: Sequence[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_MOST_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
