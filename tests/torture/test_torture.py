"""Torture finds nothing where nothing is wrong, finds what was planted, and says how to repeat it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness import servers
from harness.faults import FaultJournal
from harness.faults.accidents import ACCIDENTS, OF_BACKEND
from harness.history import load_run
from harness.judge.checkers import run_checks, verdict_of
from harness.lab.nemesis import Nemesis, PlannedFault
from harness.lab.participant import Forkserver, open_forkserver
from harness.lab.rig import Rig
from harness.servers import ServerFailed
from harness.servers.catalogue import SHARED
from harness.torture.plan import KEYS, PROCESSES, RoundPlan, plan_round
from harness.torture.round import torture_round
from harness.torture.sometimes import FAULTS, rare_paths
from tests.cli.program import harness
from tests.torture.roles import exclude_nobody, leave_a_task

pytestmark = pytest.mark.faults


@pytest.fixture
async def forkserver(tmp_path: Path) -> AsyncIterator[Forkserver]:
    async with open_forkserver(tmp_path / "log") as one:
        yield one


def quiet(backend: str) -> RoundPlan:
    return replace(plan_round(1, backend, 3.0), lanes=())


@pytest.mark.parametrize(
    ("backend", "installed", "seed"),
    [("redis-queue", "one by one", 2), ("redis-queue", "replicated", 17), ("redis-queue", "clocked", 1)],
)
async def test_a_round_holds_and_what_is_left_of_it_is_judged_alike(
    backend: str, installed: str, seed: int, tmp_path: Path, forkserver: Forkserver
) -> None:
    plan = plan_round(seed, backend, 4.0)
    assert plan.servers == installed
    result = await torture_round(plan, forkserver, tmp_path / "round")
    assert result.verdict == "ok", result.findings
    assert result.grants
    assert result.acknowledged
    assert result.faults
    assert verdict_of(run_checks(load_run(tmp_path / "round"))) == "ok"


async def test_a_lock_that_excludes_nobody_is_found(tmp_path: Path, forkserver: Forkserver) -> None:
    result = await torture_round(quiet("redis"), forkserver, tmp_path / "round", role=exclude_nobody)
    assert result.verdict == "violated"
    assert any("granted" in finding for finding in result.findings)


async def test_a_resource_that_does_not_fence_is_found(tmp_path: Path, forkserver: Forkserver) -> None:
    for seed in range(1, 7):  # one is nearly always enough; what a round comes to is up to the machine
        plan = plan_round(seed, "redis", 4.0)
        result = await torture_round(plan, forkserver, tmp_path / f"{seed}", fence="off")
        if result.verdict == "violated":
            break
    assert result.verdict == "violated"


async def test_a_task_that_is_left_behind_is_found(tmp_path: Path, forkserver: Forkserver) -> None:
    result = await torture_round(quiet("redis"), forkserver, tmp_path / "round", role=leave_a_task)
    assert result.verdict == "violated"
    assert any("left a task behind" in finding for finding in result.findings)


async def test_a_server_that_does_not_start_again_is_said_and_no_defect_of_the_harness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*, wipe: bool = False) -> None:
        raise ServerFailed("it stays down")

    async with servers.redis() as node:
        monkeypatch.setattr(node, "start", fails)
        rig = cast(Rig, SimpleNamespace(nodes=[node]))
        fault = PlannedFault("lock server crashed", 0.0, 0.0, 0, (0,))
        with pytest.raises(ServerFailed, match="stays down"):
            await Nemesis(rig, [], FaultJournal(0)).carry_out([[fault]])


def test_a_seed_means_the_same_round_and_another_seed_another() -> None:
    assert plan_round(7, "etcd", 15.0) == plan_round(7, "etcd", 15.0)
    assert plan_round(7, "etcd", 15.0) != plan_round(8, "etcd", 15.0)


@pytest.mark.parametrize("backend", SHARED)
def test_every_accident_of_a_backend_comes_some_day_and_excuses_a_ttl(backend: str) -> None:
    plans = [plan_round(seed, backend, 15.0) for seed in range(100)]
    faults = [fault for plan in plans for lane in plan.lanes for fault in lane]
    assert {fault.accident for fault in faults} == {"", *(one.name for one in OF_BACKEND[backend])}
    assert all(fault.process < PROCESSES for fault in faults)
    for fault in faults:
        if fault.accident and (ACCIDENTS[fault.accident].frees or ACCIDENTS[fault.accident].forgets):
            assert fault.seconds > plans[0].ttl
            assert fault.key in KEYS


@pytest.mark.parametrize("backend", SHARED)
def test_failovers_jumps_and_full_disks_come_where_the_servers_can_have_them(backend: str) -> None:
    plans = [plan_round(seed, backend, 15.0) for seed in range(100)]
    kinds = {
        (plan.servers, fault.kind)
        for plan in plans
        for lane in plan.lanes
        for fault in lane
        if fault.kind in FAULTS
    }
    expected = {
        (plan.servers, disk) for plan in plans for disk in ("lock server disk full", "resource disk full")
    }
    had = {plan.servers for plan in plans}
    assert ("clocked" in had) == (backend in ("redis", "redis-queue", "redlock"))
    assert ("replicated" in had) == (backend not in ("redlock", "postgres"))
    expected |= {("clocked", "clock jump")} if "clocked" in had else set()
    expected |= {("replicated", "failover")} if "replicated" in had else set()
    assert kinds == expected
    assert {kind for _, kind in kinds} <= set(rare_paths(backend))


async def test_the_command_says_what_it_visited_and_how_to_repeat_it(tmp_path: Path) -> None:
    words = ("torture", "--backend", "redis", "--rounds", "1", "--round", "3s", "--seed", "3")
    program = await harness(*words, "--out", str(tmp_path))
    assert program.code == 0, program.stdout
    summary = program.summary()
    (row,) = summary["rounds"]
    assert row["command"] == "python -m harness torture --backend redis --rounds 1 --seed 3 --round 3s"
    assert set(summary["not_visited"]) == {"redis"}
    assert "never" in program.stdout
    assert "rare paths" in program.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(("--minutes", "0"), "more than 0"), (("--backend", "nosuch"), "nosuch"), (("--rounds", "x"), "'x'")],
)
async def test_bad_input_is_one_sentence(words: tuple[str, str], sentence: str) -> None:
    program = await harness("torture", *words)
    assert program.code == 2
    assert sentence in program.stderr
    assert len(program.err) == 1
