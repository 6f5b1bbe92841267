"""Published figures, measured again: the command, and each reproduction in a short form."""

import json
from pathlib import Path

import pytest

from harness.config import UsageError
from harness.repro import dead_waiters, jepsen_lock_set, kleppmann
from harness.repro.finding import Figure, Finding
from harness.repro.registry import find, reproductions
from tests.cli.program import harness
from tests.experiments.labs import UnfencedLab, quick_lab

NAMES = {"dead-waiters", "jepsen-lock-set", "kleppmann-33-34"}


async def test_list_names_each_with_the_published_figure() -> None:
    program = await harness("repro", "list")
    assert program.code == 0
    assert set(reproductions()) == NAMES
    for one in reproductions().values():
        assert one.name in program.stdout
        assert one.published in program.stdout


def test_an_unknown_name_is_one_sentence_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there is no reproduction 'nope': there are dead-waiters"):
        find("nope")


async def test_33_after_34_as_a_person_runs_it(tmp_path: Path) -> None:
    program = await harness("repro", "kleppmann-33-34", "--quick", "--out", str(tmp_path))
    assert program.code == 0, program.stdout + program.stderr
    (folder,) = tmp_path.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["holds"]
    assert [figure["events"] for figure in summary["figures"]] == [10, 0, 10, 0]
    for said in (summary["published"], "95 %", "differs", "as claimed", summary["command"]):
        assert said in program.stdout


async def test_33_after_34_is_noticed_when_the_resource_compares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kleppmann, "QUICK_TRIALS", 2)
    async with UnfencedLab(tmp_path) as lab:
        finding = await kleppmann.run(lab)
    assert not finding.holds


@pytest.mark.faults
async def test_those_behind_dead_waiters_do_not_pay_for_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_waiters, "COUNTS", (5,))
    monkeypatch.setattr(dead_waiters, "QUICK_TRIALS", 2)
    async with quick_lab(tmp_path) as lab:
        finding = await dead_waiters.run(lab)
    assert finding.holds
    assert [figure.name for figure in finding.figures] == ["5 waiters killed", "5 waiters frozen"]


@pytest.mark.faults
@pytest.mark.slow
async def test_the_lock_set_loses_nothing_with_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jepsen_lock_set, "QUICK_SECONDS", 10.0)
    monkeypatch.setattr(jepsen_lock_set, "QUICK_SETS", 2)
    async with quick_lab(tmp_path) as lab:
        finding = await jepsen_lock_set.run(lab)
    fenced = finding.figures[-1]
    assert fenced.name == "asyncdlock, every operation fenced"
    assert fenced.trials > 0
    assert fenced.events == 0
    assert all(figure.trials > 0 for figure in finding.figures)
    assert "a waiter whose lease ran out" in finding.differs[0]


def test_a_figure_comes_with_its_interval_and_a_finding_needs_trials() -> None:
    none = Figure(name="ours", events=0, trials=200, what="updates lost")
    assert str(none) == "0 of 200 (0 %, 95 %: 0 % to 1.9 %) updates lost"
    assert Finding(figures=[none], differs=[]).holds
    some = Figure(name="ours", events=1, trials=200, what="updates lost", holds=False)
    assert not Finding(figures=[none, some], differs=[]).holds
    nothing = Figure(name="ours", events=0, trials=0, what="updates lost")
    assert not Finding(figures=[nothing], differs=[]).holds
