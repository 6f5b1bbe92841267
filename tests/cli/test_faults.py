"""Faults on the main command: real servers are killed, frozen and cut off, and the run can tell."""

import json
from pathlib import Path
from typing import Any

from harness.history import load_run
from tests.cli.program import Program, harness

LOAD = ("--backend", "redis-queue", "--contenders", "50", "--rate", "100", "--timeout", "10s")


async def run_with(tmp_path: Path, *words: str) -> Program:
    return await harness(*LOAD, *words, "--out", str(tmp_path / "runs"))


def faults_in(run: Program) -> list[dict[str, Any]]:
    """Those of the summary, which must be those of the history and on the page."""
    told: list[dict[str, Any]] = run.summary()["faults"]
    recorded = load_run(run.folder()).faults
    assert [fault.name for fault in recorded] == [fault["name"] for fault in told]
    page = (run.folder() / "report.html").read_text()
    for fault in told:
        assert fault["name"] in run.stdout
        assert fault["name"] in page
    assert page.count('class="band"') >= len(told)
    return told


async def test_a_killed_server_comes_back_with_its_fences_and_the_run_is_well(tmp_path: Path) -> None:
    run = await run_with(tmp_path, "--duration", "3s", "--fault", "kill:server@1s+300ms")
    run.assert_well()
    (fault,) = faults_in(run)
    assert fault["name"] == "server crashed"
    assert 1.0 <= fault["at_s"] < fault["until_s"]
    rows = load_run(run.folder()).rows
    assert any((row.granted or 0) > fault["until_s"] * 1e9 for row in rows), "it serves again"


async def test_a_server_that_was_killed_for_good_did_not_die_by_itself(tmp_path: Path) -> None:
    run = await run_with(tmp_path, "--duration", "2s", "--timeout", "2s", "--fault", "kill:server@1s")
    run.assert_well()
    (fault,) = faults_in(run)
    summary = run.summary()
    assert summary["arrivals"]["acquired"] < summary["arrivals"]["offered"]
    granted = [row.granted for row in load_run(run.folder()).rows if row.granted is not None]
    assert max(granted) < fault["at_s"] * 1e9 + 1e9


async def test_nobody_is_granted_a_lock_through_a_partition(tmp_path: Path) -> None:
    run = await run_with(
        tmp_path, "--duration", "3s", "--fault", "partition@1s+700ms", "--option", "local_handoffs=0"
    )
    run.assert_well()
    (fault,) = faults_in(run)
    assert fault["name"] == "partition"
    # What was on its way when the link was cut may still arrive.
    cut, mended = fault["at_s"] * 1e9 + 200e6, fault["until_s"] * 1e9
    rows = load_run(run.folder()).rows
    assert not [row for row in rows if row.called and row.called > cut and cut < (row.granted or 0) < mended]
    assert any((row.granted or 0) > mended for row in rows)


async def test_a_frozen_holder_is_displaced_and_its_write_refused(tmp_path: Path) -> None:
    run = await run_with(
        tmp_path, "--duration", "2s", "--ttl", "500ms", "--fault", "pause:holder@500ms+1500ms"
    )
    run.assert_well()
    (fault,) = faults_in(run)
    assert fault["name"] == "holder frozen"
    assert run.summary()["resource"]["stale_rejections"] == 1
    (frozen,) = [row for row in load_run(run.folder()).rows if row.paused]
    assert frozen.fence == fault["details"]["fence"]
    assert frozen.outcome == "stale"


async def test_a_killed_resource_is_started_again_to_tell_what_it_decided(tmp_path: Path) -> None:
    run = await run_with(tmp_path, "--duration", "2s", "--fault", "kill:resource@1s")
    run.assert_well()
    assert [fault["name"] for fault in faults_in(run)] == ["server crashed"]
    summary = run.summary()
    assert summary["resource"]["source"] == "log"
    assert 0 < summary["resource"]["accepted"] < summary["arrivals"]["acquired"]


async def test_drawn_faults_come_about(tmp_path: Path) -> None:
    run = await run_with(tmp_path, "--duration", "4s", "--ttl", "1s", "--faults", "random:3")
    checks = run.summary()["checks"]
    assert all(check["verdict"] == "ok" for name, check in checks.items() if name != "trust"), checks
    assert 2 <= len(faults_in(run)) <= 4


async def test_a_fault_that_cannot_be_is_said_before_anything_starts(tmp_path: Path) -> None:
    run = await run_with(tmp_path, "--fault", "kill:server9@1s")
    assert run.code == 2
    assert run.stderr.count("\n") == 0
    assert "the lock server has 1 node" in run.stderr
    assert not (tmp_path / "runs").exists()


async def test_stages_are_told_apart(tmp_path: Path) -> None:
    run = await harness(
        "--backend", "redis-queue", "--stages", "50/1s,200/1s", "--out", str(tmp_path / "runs")
    )
    run.assert_well()
    first, second = run.summary()["stages"]
    assert (first["offered"], second["offered"]) == (50, 200)
    assert (first["acquired"], second["acquired"]) == (50, 200)
    assert (second["from_s"], second["to_s"]) == (1.0, 2.0)
    assert second["arrival_to_grant_ms"]["count"] == 200
    assert "200/s from 1 s to 2 s: 200 of 200 acquired" in run.stdout


async def test_a_scenario_is_a_run_and_the_command_line_wins(tmp_path: Path) -> None:
    scenario = tmp_path / "nightly.toml"
    scenario.write_text(
        'backend = "redis-queue"\nrate = 40\nduration = "30s"\ncontenders = 20\nfence = true\nquiet = true\n'
        'key-distribution = "zipf"\nkeys = 5\n'
        'fault = ["pause:server@300ms+100ms"]\nthreshold = ["failed==0"]\n'
    )
    run = await harness(
        "--scenario", str(scenario), "--duration", "1s", "--out", str(tmp_path / "runs"), "--rate=50"
    )
    config = run.summary()["config"]
    assert (config["backend"], config["rate"], config["duration"]) == ("redis-queue", 50.0, 1.0)
    assert (config["keys"], config["key_distribution"]) == (5, "zipf")
    assert config["faults"] == ["pause:server@0.3s+0.1s"]
    assert config["thresholds"] == ["failed==0"]
    assert len(run.out) == 1, "quiet"
    assert json.loads((run.folder() / "summary.json").read_text())["arrivals"]["offered"] == 50
