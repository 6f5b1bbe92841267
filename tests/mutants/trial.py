"""Runs tests in a throw-away copy of the tree, with a bug planted in it or without."""

import enum
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import ROOT, Mutant

_LEFT_OUT = shutil.ignore_patterns(".git", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis", "results")
_FAILED, _PASSED = 1, 0  # pytest's exit codes


class Verdict(enum.Enum):
    """What became of a planted bug."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_APPLICABLE = "not applicable"


class Outcome(NamedTuple):
    verdict: Verdict
    detail: str = ""


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """A copy to plant bugs in."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
        yield copy


def attempt(mutant: Mutant, copy: Path, limit: float) -> Outcome:
    """Plant the bug in `copy`, run its test for `limit` seconds at most, and mend the copy."""
    if misfit := mutant.misfit(copy):
        return Outcome(Verdict.NOT_APPLICABLE, misfit)
    code, said = _run_planted(mutant, copy, limit)
    if code is None:
        # On a busy machine any test may take that long: what kills is that it takes longer than without the bug.
        started = time.monotonic()
        if run([mutant.test], copy, limit=3600)[0] != _PASSED:
            return Outcome(Verdict.NOT_APPLICABLE, "its test fails without the bug")
        enough = 3 * (time.monotonic() - started)
        if enough > limit:
            limit = enough
            code, said = _run_planted(mutant, copy, limit)
    if code is None:
        return Outcome(Verdict.KILLED, f"no end within {limit:g} s")
    if code == _FAILED:
        return Outcome(Verdict.KILLED)
    if code == _PASSED and " passed" in said:
        return Outcome(Verdict.SURVIVED)
    # Skipped for want of a server, a source that cannot be read, a name that pytest does not know.
    return Outcome(Verdict.NOT_APPLICABLE, said.strip().rpartition("\n")[2])


def _run_planted(mutant: Mutant, copy: Path, limit: float) -> tuple[int | None, str]:
    source = copy / mutant.file
    before = source.read_text("utf-8")
    mutant.plant(copy)
    try:
        return run([mutant.test], copy, limit)
    finally:
        source.write_text(before, "utf-8")


def run(tests: Sequence[str], copy: Path, limit: float) -> tuple[int | None, str]:
    """pytest's exit code and output in `copy`; no code when the time was up."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *tests]
    # Children that a test starts import from the copy as well; a stale byte code would hide the bug.
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile() as output:
        # A session of its own, so that a test which hangs is ended with all that it started.
        with subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=output, start_new_session=True
        ) as process:
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
