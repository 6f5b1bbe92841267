"""`compare A B`: figures side by side, and an answer that may be "cannot tell"."""

from pathlib import Path

import pytest

from harness.cli.main import main
from harness.report.model import Latencies, Latency, Summary
from harness.report.summary import SCHEMA
from harness.report.summary_json import write_summary


def written(folder: Path, p99: float, *, throughput: float = 100.0) -> str:
    folder.mkdir()
    latency = Latency(p50=1.0, p99=p99, count=1000, intervals={"p99": (p99 - 1, p99 + 1)})
    write_summary(
        folder,
        Summary(
            schema=SCHEMA, verdict="ok", throughput_per_s=throughput, latency_ms=Latencies(acquire=latency)
        ),
    )
    return str(folder)


def line(said: str, figure: str) -> str:
    return next(line.strip() for line in said.splitlines() if line.split()[:1] == [figure])


def test_two_runs_are_set_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", written(tmp_path / "a", 5.0), written(tmp_path / "b", 9.0)]) == 0
    said = capsys.readouterr().out
    assert line(said, "acquire.p99").split()[-1] == "higher"
    assert line(said, "throughput_per_s").endswith("cannot tell")


def test_a_threshold_holds_for_the_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = written(tmp_path / "a", 5.0), written(tmp_path / "b", 9.0)
    assert main(["compare", one, other, "--threshold", "acquire.p99<7ms"]) == 4
    assert "acquire.p99<7ms: failed, it was 9 ms" in capsys.readouterr().out
    assert main(["compare", other, one, "--threshold", "acquire.p99<7ms"]) == 0


def test_a_run_that_is_not_ok_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = written(tmp_path / "a", 5.0)
    (tmp_path / "b").mkdir()
    write_summary(tmp_path / "b", Summary(schema=SCHEMA, verdict="violated"))
    assert main(["compare", one, str(tmp_path / "b")]) == 0
    assert "B: a run with verdict violated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["A", "nowhere"], "name the folder of a finished run"),
        (["A,A", "A"], "cannot be paired"),
        (["A", "A", "--threshold", "speed<1"], "not a figure of a run"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    run = written(tmp_path / "a", 5.0)
    assert main(["compare", *(word.replace("A", run) for word in words)]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
