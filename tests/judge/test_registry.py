"""A checker is one file; its crash is no pass; its findings stay readable."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.history import Decision, History, Row
from harness.judge.checkers import CheckResult, Findings, checker, registry, run_checks, verdict_of, worst
from harness.judge.checkers.evidence import Evidence
from tests.judge.mutations import well_behaved_history


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CHECKERS", dict(registry.checkers()))

    @checker
    def crash(evidence: Evidence) -> CheckResult:
        raise ZeroDivisionError("by nought")


@pytest.mark.usefixtures("crashing")
def test_a_checker_that_crashes_is_unknown_and_so_is_the_run() -> None:
    results = run_checks(well_behaved_history(5, keys=1))
    assert results["crash"].verdict == "unknown"
    assert results["crash"].findings == ["the checker itself failed: ZeroDivisionError: by nought"]
    assert {result.verdict for name, result in results.items() if name != "crash"} == {"ok"}
    assert verdict_of(results) == "unknown"


def test_the_worst_verdict_wins_and_nothing_at_all_is_unknown() -> None:
    assert worst(["ok", "unknown", "violated", "ok"]) == "violated"
    assert worst(["ok", "unknown"]) == "unknown"
    assert worst(["ok", "ok"]) == "ok"
    assert worst([]) == "unknown"


def test_twenty_findings_are_listed_and_the_rest_counted_violations_first() -> None:
    findings = Findings()
    for number in range(30):
        findings.unknown("unsure of {}", number)
    for number in range(1000):
        findings.violated("wrong: {}", number)
    result = findings.result()
    assert result.verdict == "violated"
    assert result.findings[:2] == ["wrong: 0", "wrong: 1"]
    assert len(result.findings) == 21
    assert result.findings[-1] == "and 1,010 more"


def test_a_finding_names_who_what_and_when() -> None:
    row = Row(7, 0, 3, "account:{1}", 0, granted=5, fence=33, owner="me")
    mine = Decision("account:{1}", 8, 33, decided=1_400_000_000, owner="me")
    other = Decision("account:{1}", 9, 34, fence_seq=2, decided=1_500_000_000, owner="you")
    findings = Evidence(History([row], [mine, other])).findings()
    findings.violated("{} did {} before {}", row, mine, other)
    assert findings.listed() == [
        "arrival 7 (key 'account:{1}', fence 33) did "
        "write #8 of arrival 7 with fence 33 on 'account:{1}' at 1.400000 s before "
        "write #9 of you with fence 34.2 on 'account:{1}' at 1.500000 s"
    ]


def test_an_empty_history_breaks_nothing_and_shows_nothing() -> None:
    results = run_checks(History([], []))
    assert results.pop("completeness").verdict == "unknown"
    assert verdict_of(results) == "ok"


@pytest.mark.parametrize(("after", "verdict"), [(40, "violated"), (0, "unknown")])
def test_a_log_that_begins_where_the_run_did_leaves_no_excuse_for_a_missing_write(
    after: int, verdict: str
) -> None:
    """A resource that was used before begins its log with a later number; one that forgets does, too."""
    history = well_behaved_history(5, keys=1)
    assert history.log is not None
    del history.log[0]
    for decision in history.log:
        decision.seq += 39
    history.log_after = after
    assert run_checks(history)["lost_updates"].verdict == verdict


def test_a_result_becomes_json_as_the_summary_wants_it() -> None:
    result = CheckResult("violated", ["two writers"], {"accepted": 2}, ["the other side"])
    assert json.loads(json.dumps(result.to_json())) == {
        "verdict": "violated",
        "findings": ["two writers"],
        "figures": {"accepted": 2},
        "unseen": ["the other side"],
    }


def test_checkers_are_pure_a_second_run_finds_the_same_and_the_history_is_untouched() -> None:
    history = well_behaved_history(50, keys=3)
    before = repr(history)
    assert run_checks(history) == run_checks(history)
    assert repr(history) == before


def test_importing_a_checker_alone_registers_it() -> None:
    """In a fresh interpreter, so that no other import can have done it."""
    program = "from harness.judge.checkers import exclusion, registry; print(*registry.checkers())"
    listed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert listed.stdout.split() == [
        *("agreement", "completeness", "contents", "exclusion", "fence_order", "holders"),
        *("lost_updates", "permits", "readers_and_writers", "stale_writes"),
    ]
