"""Storms: random faults on every backend. With the fence on nothing is lost; with it off, much is."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import pytest

from harness.experiments import storm as storm_module
from harness.experiments.storm import _Runs, storm
from harness.experiments.storm.plan import GROUPS, PROCESSES, RunPlan, draw_turns, plan_run
from harness.experiments.storm.single import Result, run_once
from harness.history import load_run
from harness.judge.checkers import run_checks, verdict_of
from harness.lab import Lab
from harness.lab.outcome import ExperimentResult
from harness.lab.participant import open_forkserver
from harness.lab.rig import Rig, open_rig
from harness.servers.catalogue import SHARED
from tests.experiments.labs import quick_lab

FIRST_SEED = 1000


@pytest.mark.faults
@pytest.mark.slow
async def test_a_storm_on_each_backend_loses_nothing_while_the_fence_is_on(tmp_path: Path) -> None:
    async with quick_lab(tmp_path, seed=FIRST_SEED) as lab:
        outcome = await storm(lab, len(SHARED), controls={})
    assert outcome.as_predicted, [(case.name, case.observed, case.reason) for case in outcome.cases]
    rows = outcome.figures["rows"]
    skipped = {case.name.partition(",")[0] for case in outcome.cases if case.skipped}
    assert not skipped or os.environ.get("ASYNCDLOCK_REQUIRE_SERVERS") != "1", skipped
    plans = [plan_run(FIRST_SEED + number) for number in range(len(SHARED))]
    assert [row["seed"] for row in rows] == [plan.seed for plan in plans if plan.backend not in skipped]
    assert {row["backend"] for row in rows} == set(SHARED) - skipped
    assert all(row["acknowledged"] for row in rows), "a run in which nobody wrote shows nothing"
    assert all(row["stale_accepted"] == row["lost_updates"] == 0 for row in rows)
    assert outcome.figures["upper_bound_95"] == pytest.approx(3 / len(rows))
    for row in rows:  # what is left of a run leads the checkers to the same verdict
        checks = run_checks(load_run(tmp_path / row["folder"]))
        assert verdict_of(checks) == row["verdict"]


@pytest.mark.faults
async def test_the_same_storm_is_found_to_lose_updates_with_the_fence_off(tmp_path: Path) -> None:
    """The storm can fail: otherwise that it does not would mean nothing."""
    async with _rig("redis", tmp_path) as rig:
        await rig.set_fence("off")
        for number in range(6):  # one is nearly always enough; what a run comes to is up to the machine
            result = await run_once(rig, plan_run(FIRST_SEED + len(SHARED) * number))
            if result.verdict == "violated":
                break
    assert result.verdict == "violated"
    assert result.stale_accepted or result.lost_updates
    assert result.findings


@asynccontextmanager
async def _rig(backend: str, folder: Path) -> AsyncIterator[Rig]:
    async with open_forkserver(folder / "log") as forkserver:
        async with open_rig(backend, forkserver, folder, processes=PROCESSES) as rig:
            yield rig


def test_a_seed_means_the_same_plan_in_every_process() -> None:
    program = (
        "import json; from harness.experiments.storm.plan import *; "
        "print(json.dumps([plan_run(seed).to_json() for seed in range(20)]), "
        "next(draw_turns(7, 1, 0, ttl=1.0)), sep='\\n')"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    here = [plan_run(seed).to_json() for seed in range(20)]
    assert json.loads(told[0][0]) == json.loads(json.dumps(here))
    assert told[0][1] == repr(next(draw_turns(7, 1, 0, ttl=1.0)))


def test_every_kind_of_fault_meets_every_backend_and_no_two_of_one_group_meet_in_a_run() -> None:
    plans = [plan_run(seed) for seed in range(1000)]
    met = Counter((plan.backend, fault.kind) for plan in plans for fault in plan.faults)
    assert set(met) == {(backend, kind) for backend in SHARED for group in GROUPS for kind in group}
    for plan in plans:
        kinds = [fault.kind for fault in plan.faults]
        assert kinds
        assert all(sum(kind in group for kind in kinds) <= 1 for group in GROUPS)
        assert all(fault.process < PROCESSES for fault in plan.faults)


def test_a_fifth_or_more_of_the_turns_overstays_its_lease() -> None:
    turns = list(islice(draw_turns(1, 0, 0, ttl=1.0), 1000))
    assert sum(turn.wait > 1.0 and (turn.stall or not turn.renew) for turn in turns) > 200


@pytest.mark.parametrize(("asked", "quick", "runs"), [(3, True, 3), (None, True, 10), (None, False, 200)])
async def test_as_many_runs_as_were_asked_for(
    asked: int | None, quick: bool, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    async def count(lab: Lab, runs: int, **_: object) -> ExperimentResult:
        counted.append(runs)
        return ExperimentResult(cases=[], answer="")

    monkeypatch.setattr(storm_module, "storm", count)
    async with Lab(tmp_path, quick=quick, seed=1, say=lambda text: None, runs=asked) as lab:
        await storm_module.run(lab)
    assert counted == [runs]


def test_a_failed_run_names_its_seed_and_the_command_that_repeats_it() -> None:
    runs = _Runs("etcd")
    runs.results = [_result(plan_run(3), "ok"), _result(plan_run(8), "violated")]
    case = runs.case
    assert case.observed == "violated"
    assert "storm --quick --runs 1 --seed 8" in case.reason
    assert "seed 3" not in case.reason
    assert any("lost" in finding for finding in case.findings)


@pytest.mark.parametrize(
    ("verdicts", "kept"),
    [
        (["ok"], ("ok", 0)),
        (["unknown", "ok"], ("ok", 1)),
        (["unknown", "violated", "ok"], ("violated", 1)),
        (["unknown"] * 4, ("unknown", 2)),
    ],
)
async def test_a_run_that_shows_nothing_is_repeated_and_counted(
    verdicts: list[str], kept: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    coming = iter(verdicts)

    async def by_the_list(rig: object, plan: RunPlan, attempt: int) -> Result:
        return replace(_result(plan, next(coming)), attempt=attempt)

    monkeypatch.setattr(storm_module, "run_once", by_the_list)
    result = await storm_module._judged_run(cast(Rig, None), plan_run(1))
    assert (result.verdict, result.attempt) == kept
    assert storm_module._facts([result])["showed nothing before"] == kept[1]


def _result(plan: RunPlan, verdict: str) -> Result:
    return Result(
        plan=plan,
        fence="on",
        attempt=0,
        folder=f"run-{plan.seed}",
        verdict=verdict,  # type: ignore[arg-type]
        findings=[] if verdict == "ok" else ["lost: 1.2"],
        faults=["client killed"],
        grants=2,
        acknowledged=2,
        refused=0,
        displaced=0,
        unknown_writes=0,
        stale_accepted=0,
        lost_updates=0 if verdict == "ok" else 1,
        seconds=1.0,
    )
