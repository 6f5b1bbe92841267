"""The command line of the experiments, and what is left when one is interrupted or killed."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from harness.cli.experiment import perform
from harness.config import UsageError
from harness.lab import Lab
from harness.lab.evidence import exit_code
from harness.lab.outcome import NOTHING_RAN, SKIPPED, Case, ExperimentResult
from harness.lab.registry import Experiment, experiments, find
from harness.lab.track import NeverHappened
from tests.cli.program import ROOT, harness, started

# What the seed and the contract name.
NAMES = {
    1: "pause-beyond-ttl",
    2: "redlock-partition",
    3: "unsafe-release",
    9: "clock-drift",
    10: "failover",
}
PATIENCE = 60.0


async def test_list_shows_number_name_and_question() -> None:
    program = await harness("experiment", "list")
    assert program.code == 0
    for number, name in NAMES.items():
        assert any(line.split()[:2] == [str(number), name] for line in program.out), program.stdout
        assert find(name).question in program.stdout


def test_every_experiment_asks_and_expects_something() -> None:
    for number, experiment in experiments().items():
        assert experiment.number == number
        assert experiment.name == experiment.name.lower()
        assert experiment.question.endswith("?"), experiment.name
        assert experiment.expectation.endswith("."), experiment.name


@pytest.mark.parametrize("word", ["pause-beyond-ttl", "1"])
def test_an_experiment_is_found_by_name_and_by_number(word: str) -> None:
    assert find(word).name == "pause-beyond-ttl"


async def test_an_unknown_experiment_is_one_sentence_and_exit_code_2() -> None:
    with pytest.raises(UsageError, match="there is no experiment 'nope'"):
        find("nope")
    program = await harness("experiment", "nope")
    assert program.code == 2
    assert "Traceback" not in program.stderr
    assert "pause-beyond-ttl" in program.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("failover", "--runs", "3"), "failover does not repeat itself: --runs is for storm"),
        (("storm", "--runs", "0"), "--runs is the number of runs, at least 1, not 0"),
    ],
)
async def test_runs_that_cannot_be_are_one_sentence_and_exit_code_2(
    words: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    program = await harness("experiment", *words, "--out", str(tmp_path))
    assert program.code == 2
    assert sentence in program.stderr
    assert "Traceback" not in program.stderr
    assert not list(tmp_path.iterdir())


async def test_an_experiment_that_cannot_begin_says_why_and_is_no_pass(tmp_path: Path) -> None:
    async def never(lab: Lab) -> ExperimentResult:
        raise NeverHappened("no processes could be prepared")

    experiment = Experiment(99, "never", "Is it?", "It is.", never)
    outcome, folder = await perform(experiment, Console(quiet=True), out=tmp_path, quick=True, seed=1)
    assert exit_code(outcome) == 1
    assert "no processes could be prepared" in (folder / "answer.md").read_text()


async def test_an_experiment_of_which_nothing_could_be_run_answers_nothing(tmp_path: Path) -> None:
    async def skipped(lab: Lab) -> ExperimentResult:
        case = Case(name="a", expected="ok", observed=SKIPPED, reason="there is no server")
        return ExperimentResult(cases=[case], answer="No. 0 of 0 cases ended with two writers.")

    experiment = Experiment(99, "skipped", "Is it?", "It is.", skipped)
    outcome, _ = await perform(experiment, Console(quiet=True), out=tmp_path, quick=True, seed=1)
    assert exit_code(outcome) == 3
    assert outcome.answer == NOTHING_RAN


def _left(pids: set[int]) -> set[int]:
    return {pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"}


async def _gone(pids: set[int]) -> None:
    async with asyncio.timeout(PATIENCE):
        while _left(pids):
            await asyncio.sleep(0.05)


async def test_ctrl_c_ends_an_experiment_and_every_process_of_it(tmp_path: Path) -> None:
    async with started("experiment", "1", "--quick", "--out", str(tmp_path)) as program:
        async with asyncio.timeout(PATIENCE):
            while len(pids := {child.pid for child in program.descendants()}) < 5:
                await asyncio.sleep(0.02)
        program.interrupt()
        await program.ended()
        assert program.code == 130
        assert "Traceback" not in program.stderr
        await _gone(pids)


@pytest.mark.faults
async def test_a_frozen_worker_does_not_outlive_an_experiment_that_is_killed(
    tmp_path: Path, redis_url: str
) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.experiments.frozen_worker", redis_url, str(tmp_path)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    worker = int(await child.stdout.readline())
    assert psutil.Process(worker).status() == psutil.STATUS_STOPPED
    child.kill()
    await child.wait()
    await _gone({worker})
