"""Experiment 12: compare-and-swap and the lock, on the same resource."""

from pathlib import Path

from rich.console import Console

from harness.cli.experiment import perform
from harness.experiments.lock_vs_cas import crossing
from harness.experiments.lock_vs_cas.increments import Increments
from harness.lab.registry import find


def both(cas: int, lock: int) -> dict[str, Increments]:
    return {"cas": Increments(1, cas, seconds=1.0), "lock": Increments(1, lock, seconds=1.0)}


def test_the_crossing_is_where_the_lock_stays_ahead() -> None:
    assert crossing({1: both(9, 5), 2: both(4, 5), 4: both(6, 5), 8: both(3, 5), 16: both(1, 5)}) == 8
    assert crossing({1: both(9, 5), 2: both(9, 5)}) is None
    assert crossing({1: both(1, 5)}) == 1


async def test_neither_loses_an_update_and_only_one_wastes_work(tmp_path: Path) -> None:
    console = Console(quiet=True)
    outcome, folder = await perform(find("lock-vs-cas"), console, out=tmp_path, quick=True, seed=1)
    assert outcome.as_predicted, {case.name: case.observed for case in outcome.ran}
    points = outcome.figures["points"]
    assert {point["way"] for point in points} == {"cas", "lock"}
    alone = next(point for point in points if point["way"] == "cas" and point["writers"] == 1)
    assert alone["refused"] == 0
    assert all(point["refused"] == 0 for point in points if point["way"] == "lock")
    assert {path.name for path in folder.glob("*.svg")} == {"updates.svg", "wasted.svg"}
