"""The safety experiments in their quick form: what was predicted to break does, and fences hold.

Each of these fails when the protection that it is about is taken away: the resource's comparison, and
for 3 the one in the release script. Redlock's validity check has its own test in tests/redlock.
"""

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.history import load_run
from harness.judge.checkers import run_checks, verdict_of
from harness.servers.catalogue import SHARED
from tests.cli.program import Program, harness

pytestmark = [pytest.mark.faults, pytest.mark.slow]


async def experiment(name: str, out: Path, *more: str) -> tuple[Program, Path, dict[str, Any]]:
    program = await harness("experiment", name, "--quick", "--out", str(out), *more)
    (folder,) = out.iterdir()
    return program, folder, json.loads((folder / "summary.json").read_text())


def assert_as_predicted(program: Program, folder: Path, summary: dict[str, Any]) -> None:
    """Exit code 0, nothing shown otherwise, skipped only what may be, and evidence that stands by itself."""
    told = "\n".join(f"{case['name']}: {case['observed']} {case['reason']}" for case in summary["cases"])
    assert program.code == 0, told + program.stderr
    assert summary["as_predicted"]
    cases = cases_of(summary)
    assert all(case["as_predicted"] for case in cases.values()), told
    assert len(cases) == len(summary["cases"]) or os.environ.get("ASYNCDLOCK_REQUIRE_SERVERS") != "1", told
    answer = (folder / "answer.md").read_text()
    assert summary["question"] in answer
    assert summary["command"] in answer
    assert summary["command"] in program.stdout
    ElementTree.fromstring((folder / "timeline.svg").read_text())
    for case in cases.values():
        judge_again(folder / case["folder"], case)


def judge_again(folder: Path, case: dict[str, Any]) -> None:
    """The files of a case lead the checkers to what the experiment said of it."""
    checks = run_checks(load_run(folder))
    assert (checks["exclusion"].verdict == "violated") is (case["observed"] == "violated"), case["name"]
    if case["observed"] == "violated":
        assert verdict_of(checks) == "violated"
        assert "two writers" in (folder / "timeline.svg").read_text()


def cases_of(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The cases that ran: those whose server is not installed are skipped."""
    return {case["name"]: case for case in summary["cases"] if case["observed"] != "skipped"}


async def test_1_a_pause_beyond_the_ttl_admits_two_writers_on_every_backend_and_the_fence_refuses_one(
    tmp_path: Path,
) -> None:
    program, folder, summary = await experiment("1", tmp_path)
    assert_as_predicted(program, folder, summary)
    cases = cases_of(summary)
    ran = [backend for backend in SHARED if f"{backend}, SIGSTOP, fence on" in cases]
    assert {"redis", "redis-queue", "redlock"} <= set(ran)
    for backend in ran:
        off, on = (cases[f"{backend}, SIGSTOP, fence {fence}"]["facts"] for fence in ("off", "on"))
        assert (off["writers accepted"], off["A was told"], off["value"]) == (2, "200", "result of A")
        assert (on["writers accepted"], on["value"]) == (1, "result of B")
        assert on["A was told"].startswith("409 seen ")
    refusals = sum(name.endswith("fence on") for name in cases)
    assert summary["figures"]["resource_stale_token_rejections_total"] >= refusals
    for kind in ("postgres row", "s3 object"):
        off, on = (cases[f"{kind}, guard {guard}"]["facts"] for guard in ("off", "on"))
        assert (off["A was told"], off["value"]) == ("stored", "result of A")
        assert (on["A was told"], on["value"]) == ("refused: seen 2, got 1", "result of B")
    assert "TWO WRITERS" in program.stdout
    assert "409: seen 2, got 1" in program.stdout


async def test_2_redlock_admits_two_holders_where_its_critic_says_and_not_where_its_author_says(
    tmp_path: Path,
) -> None:
    program, folder, summary = await experiment("redlock-partition", tmp_path)
    assert_as_predicted(program, folder, summary)
    cases = cases_of(summary)
    for fault in (
        "partition, A frozen after the check",
        "node frozen, A frozen after the check",
        "clock of a node jumps",
        "node restarts empty",
    ):
        assert cases[f"{fault}, fence off"]["facts"]["two holders"] is True
        assert cases[f"{fault}, fence on"]["facts"]["refused"].startswith("409 seen ")
    for caught in ("A frozen before the check", "node restarts with its data"):
        assert cases[f"{caught}, fence off"]["facts"]["two holders"] is False


async def test_3_get_then_del_deletes_anothers_lock_and_one_script_does_not(tmp_path: Path) -> None:
    program, folder, summary = await experiment("unsafe-release", tmp_path)
    assert_as_predicted(program, folder, summary)
    cases = cases_of(summary)
    for fence in ("off", "on"):
        assert cases[f"GET then DEL, fence {fence}"]["facts"]["B's lock survived"] is False
        assert cases[f"one script, fence {fence}"]["facts"]["B's lock survived"] is True


async def test_9_wrong_clocks_of_a_majority_end_leases_early_and_fences_do_not_care(tmp_path: Path) -> None:
    program, folder, summary = await experiment("clock-drift", tmp_path)
    assert_as_predicted(program, folder, summary)
    cases = cases_of(summary)
    assert cases["3 of 5 clocks × 2, fence off"]["facts"]["A's lease then"].endswith(" s left")
    assert cases["2 of 5 clocks × 2, fence off"]["facts"]["A's lease then"] == "over"


async def test_10_a_failover_forgets_a_grant_and_the_counter_is_lifted_again(tmp_path: Path) -> None:
    program, folder, summary = await experiment("failover", tmp_path)
    assert_as_predicted(program, folder, summary)
    cases = cases_of(summary)
    assert cases["counter forgotten, fence on"]["facts"]["refused"].startswith("5 × ")
    assert cases["counter forgotten and lifted, fence on"]["facts"]["refused"] == "nothing"
