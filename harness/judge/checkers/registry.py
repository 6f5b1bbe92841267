"""Finds the checkers of this folder and runs them; one that crashes has not passed."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.history import History, collector_paused
from harness.judge.checkers.evidence import Evidence
from harness.judge.checkers.result import CheckResult, Unsound, Verdict, worst

Checker = Callable[[Evidence], CheckResult]

_AT_THE_LOCK = ("holders", "readers_and_writers", "permits")
_AT_THE_RESOURCE = ("exclusion", "stale_writes", "lost_updates", "contents")

_CHECKERS: dict[str, Checker] = {}


def checker(function: Checker) -> Checker:
    """Register a checker under its function's name."""
    _CHECKERS[function.__name__] = function
    return function


def checkers() -> Mapping[str, Checker]:
    """Every checker by name: all that a module of this folder registers."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"harness.judge.checkers.{module.name}")
    return dict(sorted(_CHECKERS.items()))


def questions() -> dict[str, str]:
    """What each checker asks, in a line."""
    return {name: (function.__doc__ or "").partition("\n")[0] for name, function in checkers().items()}


def run_checks(history: History) -> dict[str, CheckResult]:
    """The result of every checker. Nothing is raised: a checker that cannot judge says `unknown`."""
    evidence = Evidence(history)
    with collector_paused():
        return {name: _guarded(check, evidence) for name, check in checkers().items()}


def verdict_of(results: Mapping[str, CheckResult]) -> Verdict:
    """The run's verdict: the worst of its checks."""
    return worst(result.verdict for result in results.values())


def broken_promise(results: Mapping[str, CheckResult]) -> str:
    """What a lock that let in too many at once has done, in one sentence; empty when it did not."""
    if all(results[name].verdict != "violated" for name in _AT_THE_LOCK if name in results):
        return ""
    safe = all(results[name].verdict == "ok" for name in _AT_THE_RESOURCE if name in results)
    if safe:
        return "the lock broke its promise; the resource protected the data"
    return "the lock broke its promise, and that the data is safe is not shown"


def _guarded(check: Checker, evidence: Evidence) -> CheckResult:
    try:
        return check(evidence)
    except Unsound as unsound:
        return CheckResult("unknown", unsound.findings)
    except Exception as crash:  # a defect of the checker must never look like a pass
        return CheckResult("unknown", [f"the checker itself failed: {type(crash).__name__}: {crash}"])
