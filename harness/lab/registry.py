"""Finds the experiments of `harness.experiments`: one module or package each, with an `@experiment`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from harness.config import UsageError
from harness.lab.lab import Lab
from harness.lab.modules import load_all
from harness.lab.outcome import ExperimentResult

Run = Callable[[Lab], Awaitable[ExperimentResult]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A question, the answer that is expected, and how to find out."""

    number: int
    name: str
    question: str
    expectation: str
    run: Run
    has_runs: bool = False
    """Whether `lab.runs` says how often it repeats itself."""


_EXPERIMENTS: dict[int, Experiment] = {}


def experiment(
    *, number: int, name: str, question: str, expectation: str, has_runs: bool = False
) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        other = _EXPERIMENTS.get(number)
        if other is not None and other.name != name:
            raise ValueError(f"experiments {other.name} and {name} share the number {number}")
        _EXPERIMENTS[number] = Experiment(number, name, question, expectation, run, has_runs)
        return run

    return register


def experiments() -> Mapping[int, Experiment]:
    """All experiments by number, in order: whatever a module of `harness.experiments` registers."""
    load_all("harness.experiments")
    return dict(sorted(_EXPERIMENTS.items()))


def find(word: str) -> Experiment:
    """The experiment of that name or number.

    :raises UsageError: there is none.
    """
    for one in experiments().values():
        if word in (one.name, str(one.number)):
            return one
    known = ", ".join(f"{one.number} {one.name}" for one in experiments().values())
    raise UsageError(f"there is no experiment {word!r}: there are {known}")
