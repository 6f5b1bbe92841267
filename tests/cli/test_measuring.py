"""How a run is measured: warm-up, repetition, the stream of its state, and an early end."""

import json
from pathlib import Path

import pytest

from harness.cli.run import in_turns
from harness.history import load_run
from harness.history.distribution import Distribution
from harness.history.recorder import Counters
from harness.load.abort import AbortRules, parse_abort
from harness.load.fleet import Progress
from harness.resource.process import spawn
from tests.cli.program import harness

SMALL = ("--backend", "memory", "--contenders", "50", "--rate", "100", "--duration", "1s")


async def test_arrivals_of_the_warm_up_are_judged_but_count_in_no_figure(tmp_path: Path) -> None:
    run = await harness(*SMALL, "--warmup", "600ms", "--out", str(tmp_path))
    run.assert_well()
    summary = run.summary()
    rows = load_run(run.folder()).rows
    assert len(rows) == 160
    assert summary["arrivals"]["offered"] == summary["arrivals"]["acquired"] == 100
    assert summary["latency_ms"]["arrival_to_grant"]["count"] == summary["latency_ms"]["hold"]["count"] == 100
    assert 100 <= summary["latency_ms"]["schedule_lag"]["count"] < 160, "those of the warm-up are left out"
    window = summary["duration_s"] - summary["drain_s"]
    assert 0.9 < window <= 1.0
    assert summary["throughput_per_s"] == pytest.approx((100 - summary["drained"]) / window, rel=0.01)
    checked = await harness("check", str(run.folder()))
    assert checked.code == run.code
    assert "160 arrivals" in checked.stdout


async def test_repeated_runs_have_folders_of_their_own_and_one_table(tmp_path: Path) -> None:
    run = await harness(*SMALL, "--repeat", "3", "--out", str(tmp_path / "a"))
    folders = sorted((tmp_path / "a").iterdir())
    assert len(folders) == 3
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert ["repeats" in summary for summary in summaries] == [False, False, True]
    repeats = summaries[-1]["repeats"]
    assert repeats["folders"] == [folder.name for folder in folders]
    rates = [summary["throughput_per_s"] for summary in summaries]
    spread = repeats["figures"]["throughput_per_s"]
    assert (spread["least"], spread["most"]) == (min(rates), max(rates))
    assert spread["interval"][0] <= spread["mean"] <= spread["interval"][1]
    assert "of 3 runs" in run.stdout and "95 % interval" in run.stdout
    assert run.code == max(summary["exit_code"] for summary in summaries)

    # The last folder stands for all of them.
    again = await harness(*SMALL, "--repeat", "3", "--quiet", "--out", str(tmp_path / "b"))
    assert len(again.out) == 3, "a line for each run"
    compared = await harness("compare", str(folders[-1]), str(max((tmp_path / "b").iterdir())))
    assert compared.code == 0
    line = next(line for line in compared.out if line.strip().startswith("throughput_per_s"))
    assert " to " in line, "three pairs have an interval"


async def test_the_gravest_of_repeated_runs_is_the_exit_code(tmp_path: Path) -> None:
    """The second run counts its fences from one again, and the resource has seen the first one's."""
    async with spawn(store="memory") as resource:
        run = await harness(*SMALL, "--repeat", "2", "--resource-url", resource.url, "--out", str(tmp_path))
    folders = sorted(tmp_path.iterdir())
    first, second = (json.loads((folder / "summary.json").read_text()) for folder in folders)
    assert first["arrivals"]["acquired"] == first["resource"]["accepted"] == 100
    assert second["resource"]["stale_rejections"] == 100
    assert (run.code, second["exit_code"]) == (3, 3)
    if not first["doubts"]:
        assert first["exit_code"] == 0


async def test_a_stream_to_standard_output_is_json_alone(tmp_path: Path) -> None:
    run = await harness(*SMALL, "--stream", "-", "--out", str(tmp_path))
    lines = [json.loads(line) for line in run.out]
    *states, end = lines
    assert states
    assert all(state["run"] == 1 and state["counters"]["offered"] > 0 for state in states)
    assert [state["elapsed_s"] for state in states] == sorted(state["elapsed_s"] for state in states)
    assert states[-1]["recent_ms"]["arrival_to_grant"]["count"] > 0
    assert (end["exit_code"], end["folder"]) == (run.code, str(next(tmp_path.iterdir())))
    assert "verdict" in run.stderr, "what people read is on standard error"


async def test_a_stream_to_a_file_numbers_the_runs(tmp_path: Path) -> None:
    file = tmp_path / "state.ndjson"
    run = await harness(*SMALL, "--repeat", "2", "--stream", str(file), "--out", str(tmp_path / "runs"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted({line["run"] for line in lines}) == [1, 2]
    assert sum("verdict" in line for line in lines) == 2
    assert "of 2 runs" in run.stdout


async def test_a_stream_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    run = await harness(*SMALL, "--stream", str(tmp_path / "no" / "file"), "--out", str(tmp_path / "runs"))
    assert (run.code, len(run.err)) == (2, 1)
    assert "--stream" in run.stderr
    assert not (tmp_path / "runs").exists()


async def test_a_bound_that_is_crossed_ends_the_run(tmp_path: Path) -> None:
    """A holder that works for a second serves one in a second; the others give up."""
    run = await harness(
        *("--backend", "memory", "--contenders", "50", "--rate", "100", "--duration", "60s", "--work", "1s"),
        *("--timeout", "300ms", "--abort-on", "timed_out>50%", "--out", str(tmp_path)),
    )
    summary = run.summary()
    assert summary["arrivals"]["offered"] < 3000
    judgement = summary["thresholds"][-1]
    assert judgement["threshold"] == "--abort-on timed_out>50%"
    assert "the run was ended after" in judgement["sentence"]
    assert not judgement["passed"]
    if not summary["doubts"]:
        assert (run.code, summary["verdict"]) == (4, "ok")


def progress(elapsed: float = 5.0, **counters: int) -> Progress:
    recent = {"arrival_to_grant": Distribution([20_000_000] * 100)}
    return Progress(elapsed=elapsed, counters=Counters(offered=1000, **counters), recent=recent)


@pytest.mark.parametrize(
    ("rule", "state", "crossed"),
    [
        ("timed_out>10%", progress(timed_out=101), True),
        ("timed_out>10%", progress(timed_out=100), False),
        ("stale_rejections>=1", progress(stale=1), True),
        ("arrival_to_grant.p99>19ms", progress(), True),
        ("arrival_to_grant.p99>21ms", progress(), False),
        ("schedule_lag.p99>1us", progress(), False),
        ("throughput_per_s<1", progress(), True),
        ("throughput_per_s<1", progress(elapsed=0.5), False),
    ],
)
def test_a_rule_is_held_against_the_state_of_the_run(rule: str, state: Progress, crossed: bool) -> None:
    rules = AbortRules([rule], warmup=1.0)
    assert rules.look(state) is crossed
    assert (rules.crossed is not None) is crossed


def test_the_first_bound_that_was_crossed_is_remembered() -> None:
    rules = AbortRules(["failed>5", "lost>5"])
    assert rules.look(progress(lost=6))
    assert rules.look(progress(lost=6, failed=6))
    assert rules.crossed is not None
    assert rules.crossed.threshold == "--abort-on lost>5"


@pytest.mark.parametrize("text", ["hold.p99>1s", "jain_index<0.5", "speed>1", "failed"])
def test_a_rule_names_a_figure_that_is_known_during_the_run(text: str) -> None:
    with pytest.raises(ValueError):
        parse_abort(text)


def test_nothing_is_looked_at_without_rules() -> None:
    assert not AbortRules([]).look(progress(failed=1000))


async def test_two_configurations_are_run_in_turns_and_compared(tmp_path: Path) -> None:
    run = await harness(*SMALL, "--repeat", "2", "--versus", "--work 20ms", "--out", str(tmp_path))
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in sorted(tmp_path.iterdir())]
    assert [summary["config"]["work"] for summary in summaries] == [0.0, 0.02, 0.02, 0.0], "A B, B A"
    line = next(line for line in reversed(run.out) if line.strip().startswith("hold.p50"))
    assert line.split()[-1] == "higher"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--rate 100", "changes nothing"),
        ("--work 'a", "cannot be read"),
        ("--speed 5", "unknown flag --speed"),
        ("--work soon", "not a duration"),
    ],
)
async def test_flags_that_cannot_be_compared_with_are_one_sentence(flags: str, complaint: str) -> None:
    run = await harness(*SMALL, "--versus", flags)
    assert (run.code, len(run.err)) == (2, 1)
    assert complaint in run.stderr


def test_rounds_are_balanced() -> None:
    assert list(in_turns(2, 3)) == [0, 1, 1, 0, 0, 1]
    assert list(in_turns(1, 3)) == [0, 0, 0]
