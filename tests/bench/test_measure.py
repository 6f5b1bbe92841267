"""`pytest bench`: one at a time, a table, figures that can be kept and compared."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench import save, surroundings
from bench.measure import Measure, Measured, compared, table

ROOT = Path(__file__).parents[2]


def bench(*words: str) -> "subprocess.CompletedProcess[str]":
    one = ("bench/test_backends.py", "-k", "memory and own", "--bench-rounds", "3", "--bench-seconds", "0.02")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *one, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_a_run_prints_its_table_and_can_be_compared_with_an_earlier_one(tmp_path: Path) -> None:
    first = bench("--bench-json", str(tmp_path / "first.json"))
    assert first.returncode == 0, first.stdout
    assert "memory, own keys, 1 at a time" in first.stdout
    assert "95 % interval" in first.stdout and "p99 µs" in first.stdout
    assert "workers" not in first.stdout, "one at a time"
    document = json.loads((tmp_path / "first.json").read_text())
    assert len(document["results"]) == 2
    assert all(len(result["rates"]) == 3 for result in document["results"])
    assert {"commit", "load_average", "cpus"} <= document["environment"].keys()
    second = bench("--bench-compare", str(tmp_path / "first.json"))
    assert any(f", {answer}" in second.stdout for answer in ("lower", "higher", "cannot tell"))


def test_a_file_that_cannot_be_compared_with_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    run = bench("--bench-compare", str(tmp_path / "other.json"))
    assert run.returncode == 4
    assert "holds no figures" in run.stderr


async def test_operations_are_measured_in_turns() -> None:
    order: list[str] = []

    def operation(name: str) -> Any:
        async def work(_: int) -> None:
            if not order or order[-1] != name:
                order.append(name)

        return work

    measure = Measure(rounds=3, seconds=0.001)
    one, other = await measure.together({"a": operation("a"), "b": operation("b")}, tasks=2)
    assert order == ["a", "b", "a", "b", "a", "b"][: len(order)] and len(order) >= 4, "a b, b a, a b"
    assert measure.results == [one, other]
    assert len(one.rates) == 3 and one.p50_us <= one.p99_us <= one.max_us


def measured(*rates: float) -> Measured:
    return Measured(name="x", tasks=1, rates=rates, p50_us=1, p99_us=2, max_us=3, cpu_us=1)


def test_a_difference_within_the_spread_cannot_be_told() -> None:
    assert compared(measured(100, 101, 99), measured(200, 201, 199)) == "× 2.00, higher"
    assert compared(measured(100, 101, 99), measured(50, 51, 49)) == "× 0.50, lower"
    assert compared(measured(100, 150, 60), measured(110, 160, 70)).endswith("cannot tell")
    assert compared(measured(100), measured(200)).endswith("cannot tell"), "one round tells nothing"


def test_rounds_that_differ_too_much_are_called_noisy() -> None:
    quiet, noisy = list(table([measured(100, 101, 102), measured(100, 140, 151)], {}))[1:]
    assert noisy.endswith("noisy") and not quiet.endswith("noisy")


def test_results_are_written_only_where_the_flags_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "RESULTS", tmp_path / "published")
    parser = argparse.ArgumentParser()
    save.add_output(parser)
    for words, folder in (
        ([], None),
        (["--publish"], tmp_path / "published"),
        (["--out", str(tmp_path / "mine")], tmp_path / "mine"),
    ):
        options = parser.parse_args(words)
        save.show("some", {"a": 1}, ["# some"], options)
        assert save.folder_for(options) == folder
        assert {path.name for path in tmp_path.iterdir()} <= {"published", "mine"}
        if folder is None:
            assert not list(tmp_path.iterdir())
        else:
            assert (folder / "some.md").read_text() == "# some\n"


def test_a_noisy_machine_is_named_beside_the_figures() -> None:
    where = surroundings.describe() | {"busy": 0.1}
    assert "quiet" not in surroundings.in_words(where)
    assert "not a quiet machine" in surroundings.in_words(where | {"busy": 2.0})


def test_the_load_of_the_benchmark_before_is_not_taken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 2.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 1.0, 0.5))
    assert not surroundings.is_noisy(surroundings.describe())


def test_a_commit_is_marked_as_changed_but_for_results_of_the_benchmark_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bench" / "results").mkdir(parents=True)
    for name in ("bench/some.py", "bench/results/some.md", "other.py"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(surroundings, "__file__", str(tmp_path / "bench" / "surroundings.py"))
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 2.0)
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "some")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    commit = surroundings.describe()["commit"]
    (tmp_path / "bench/results/some.md").write_text("new")
    assert surroundings.describe()["commit"] == commit
    (tmp_path / "other.py").write_text("new")
    assert surroundings.describe()["commit"] == f"{commit}-dirty"
