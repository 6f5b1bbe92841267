"""Every doctored run gets its right verdict, for the right reason, also through the command line."""

import importlib
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.history import load_run
from harness.judge.checkers import run_checks, verdict_of
from tests.histories.doctored import CASES, Case

for part in ("locks", "resources", "files", "attackers", "evaders"):  # importing them fills CASES
    importlib.import_module(f"tests.histories.doctored_{part}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_doctored_run_gets_its_right_verdict(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case.write(tmp_path)
    results = run_checks(load_run(tmp_path))
    found = {name: result.findings for name, result in results.items() if result.findings}
    assert verdict_of(results) == case.verdict, found
    if case.check:
        assert results[case.check].verdict == case.verdict, found
        assert any(case.finding in finding for finding in results[case.check].findings), found
    assert main(["check", str(tmp_path)]) == {"ok": 0, "violated": 1, "unknown": 3}[case.verdict]
    assert f"verdict: {case.verdict}" in capsys.readouterr().out


def test_there_are_enough_of_each_kind_and_no_two_share_a_name() -> None:
    verdicts = [case.verdict for case in CASES]
    assert len({case.name for case in CASES}) == len(CASES) >= 170
    assert min(verdicts.count(verdict) for verdict in ("ok", "violated", "unknown")) >= 15


def test_a_case_is_always_written_in_the_same_way(tmp_path: Path) -> None:
    for case in CASES:
        one, other = tmp_path / case.name / "one", tmp_path / case.name / "other"
        for folder in (one, other):
            folder.mkdir(parents=True)
            case.write(folder)
        for path in one.iterdir():
            assert path.read_bytes() == (other / path.name).read_bytes()
