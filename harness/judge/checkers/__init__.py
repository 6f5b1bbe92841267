"""Judges a run from its recorded facts alone: pure functions of a history.

`run_checks(history)` runs every checker and `verdict_of` merges what they found. A checker is one
file in this folder with a function under `@checker`; the registry finds it. `fairness` measures and
does not judge.
"""

from harness.judge.checkers.registry import checker, run_checks, verdict_of
from harness.judge.checkers.result import CheckResult, Findings, Unsound, Verdict, worst

__all__ = ["CheckResult", "Findings", "Unsound", "Verdict", "checker", "run_checks", "verdict_of", "worst"]
