"""`check RUN` reads a run again, prints what it finds and exits as the run would have."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.check import add_arguments, run
from harness.config import RunConfig
from harness.history import HISTORY_FILE, RESOURCE_FILE, Decision, History, HistoryWriter, Row
from harness.judge.checkers import CheckResult
from harness.report.model import Arrivals, Summary
from harness.report.summary_json import SUMMARY_FILE, write_summary
from tests.judge.golden import FOLDER, GOLDEN, Golden
from tests.judge.mutations import well_behaved_history


def check(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def save(folder: Path, history: History) -> None:
    with HistoryWriter(folder / HISTORY_FILE, Row, origin_ns=0, config=history.config) as rows:
        rows.write(history.rows)
    with HistoryWriter(folder / RESOURCE_FILE, Decision, origin_ns=0) as log:
        log.write(history.log or ())


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_the_exit_code_is_the_verdict(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(str(golden.path)) == {"ok": 0, "violated": 1, "unknown": 3}[golden.verdict]
    assert f"verdict: {golden.verdict}" in capsys.readouterr().out


def test_a_run_folder_is_read_with_the_log_of_the_resource(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, well_behaved_history(200, keys=5))
    assert check(str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "200 arrivals, 200 decisions" in out
    assert "order: 0 inversions" in out


def test_findings_are_printed_under_their_check(capsys: pytest.CaptureFixture[str]) -> None:
    check(str(FOLDER / "violated-two-writers.jsonl"))
    lines = capsys.readouterr().out.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith("exclusion "))
    assert "violated" in lines[at]
    assert lines[at + 1].startswith("  - two writers: write #2 of arrival 1 with fence 33")


def test_json_holds_checks_and_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--json", str(FOLDER / "violated-lost-update.jsonl")) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "violated"
    assert found["checks"]["lost_updates"]["verdict"] == "violated"
    assert found["order"]["inversions"] == 0


def test_no_history_is_one_sentence_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nonsense = tmp_path / "nonsense.jsonl"
    nonsense.write_text("to be or not to be\nthat is the question\n")
    for what in (tmp_path, tmp_path / "absent", nonsense):
        assert check(str(what)) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"cannot check {what}: ")
        assert captured.err.count("\n") == 1


SOUND = Summary(schema="asyncdlock-summary/1", arrivals=Arrivals(offered=200))
DISTRUST = {"trust": CheckResult("unknown", ["the load generator was 3 s late"])}


@pytest.mark.parametrize(
    ("summary", "doubt"),
    [
        (SOUND, ""),
        (replace(SOUND, doubts=("the load generator was 3 s late",)), "3 s late"),
        (replace(SOUND, checks=DISTRUST), "3 s late"),
        (replace(SOUND, arrivals=Arrivals(offered=204)), "counts 204 arrivals, the history 200"),
        (
            replace(SOUND, config=RunConfig(kind="semaphore:3")),
            "locks were semaphore:3, the history exclusive",
        ),
        (replace(SOUND, config=RunConfig(warmup=1e-8)), "counts 200 arrivals, the history 199"),
    ],
    ids=["sound", "doubtful", "untrusted", "more arrivals", "another kind", "warm-up"],
)
def test_what_the_run_said_against_itself_counts(
    summary: Summary, doubt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = well_behaved_history(200, keys=5)
    history.config = {"kind": "exclusive"}
    save(tmp_path, history)
    write_summary(tmp_path, summary)
    assert check(str(tmp_path)) == (3 if doubt else 0)
    assert doubt in capsys.readouterr().out


@pytest.mark.parametrize("text", ['{"schema": "asyncdlock-summary/1", "verd', "[]", '{"schema": "other"}'])
def test_what_a_damaged_summary_said_is_not_known(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, well_behaved_history(200, keys=5))
    (tmp_path / SUMMARY_FILE).write_text(text)
    assert check(str(tmp_path)) == 3
    assert "what the run said against itself is not known" in capsys.readouterr().out


def test_a_stranger_in_the_log_gives_the_terminal_no_orders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = well_behaved_history(200, keys=5)
    assert history.log is not None
    history.log.append(replace(history.log[-1], seq=201, owner="\x1b[2J\ud800", outcome="repeated"))
    save(tmp_path, history)
    assert check(str(tmp_path)) == 1
    assert r"of \x1b[2J\ud800 with fence" in capsys.readouterr().out
