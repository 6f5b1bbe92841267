"""Experiment 12: compare-and-swap and the lock, on the same resource."""

from pathlib import Path

import pytest
from rich.console import Console

from harness.cli.experiment import perform
from harness.experiments.lock_vs_cas import crossing
from harness.experiments.lock_vs_cas.increments import Increments
from harness.lab import Lab
from harness.lab.evidence import exit_code
from harness.lab.outcome import NOTHING_RAN
from harness.lab.registry import find
from harness.servers.catalogue import LockServer
from harness.servers.errors import ServerMissing


def both(cas: int, lock: int) -> dict[str, Increments]:
    return {"cas": Increments(1, cas, seconds=1.0), "lock": Increments(1, lock, seconds=1.0)}


def test_the_crossing_is_where_the_lock_stays_ahead() -> None:
    assert crossing({1: both(9, 5), 2: both(4, 5), 4: both(6, 5), 8: both(3, 5), 16: both(1, 5)}) == 8
    assert crossing({1: both(9, 5), 2: both(9, 5)}) is None
    assert crossing({1: both(1, 5)}) == 1


async def test_without_a_lock_server_nothing_is_said_of_wasted_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def missing(lab: Lab, backend: str) -> LockServer:
        raise ServerMissing(f"no {backend} here")

    monkeypatch.setattr(Lab, "lock_server", missing)
    console = Console(quiet=True)
    outcome, _ = await perform(find("lock-vs-cas"), console, out=tmp_path, quick=True, seed=1)
    assert exit_code(outcome) == 3
    assert outcome.answer == NOTHING_RAN


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
