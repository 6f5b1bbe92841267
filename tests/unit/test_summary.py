"""The summary: figures, what bounded the run, whether to trust it, and the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.bounds import Cycle, find_bound, measure_cycle
from harness.config import RunConfig
from harness.fleet import FleetResult
from harness.history import Decision, History, Row
from harness.recorder import Counters, Recording
from harness.report.html import write_html
from harness.report.summary_json import NoSummary, read_summary, write_summary
from harness.report.terminal import print_summary
from harness.summary import build, exit_code
from harness.trust import doubts

MS = 1_000_000


def holder(number: int, called: int, granted: int, sent: int, done: int, released: int, **more: Any) -> Row:
    """A granted arrival; times in milliseconds."""
    row = Row(number, 0, number, more.pop("key", "k"), called * MS, called * MS, called * MS)
    row.granted, row.write_sent, row.write_done, row.released = (
        granted * MS,
        sent * MS,
        done * MS,
        released * MS,
    )
    row.outcome, row.write = "ok", "accepted"
    row.fence, row.owner = number + 1, f"owner-{number}"
    for name, value in more.items():
        setattr(row, name, value)
    return row


QUEUE = [  # three that wait for one another, and one that finds the lock free
    holder(0, 0, 0, 10, 13, 14),
    holder(1, 1, 15, 25, 28, 29),
    holder(2, 2, 32, 42, 45, 46),
    holder(3, 90, 91, 95, 98, 99),
]


def test_a_cycle_is_measured_where_somebody_waited() -> None:
    cycle = measure_cycle(QUEUE, 0.1)
    assert cycle.count == 2
    assert cycle.work == pytest.approx(0.010)
    assert cycle.write == pytest.approx(0.003)
    assert cycle.handoff == pytest.approx(0.003)
    assert cycle.ceiling == pytest.approx(1 / 0.016)
    assert cycle.utilisation == pytest.approx((15 + 17 + 14 + 8) / 100)


def test_time_behind_a_frozen_holder_is_kept_apart() -> None:
    rows = [holder(0, 0, 0, 50, 51, 52, paused=True), holder(1, 1, 20, 21, 22, 23)]
    cycle = measure_cycle(rows, 0.1)
    assert cycle.count == 0
    assert cycle.frozen == pytest.approx(0.020)


def test_keys_are_measured_apart() -> None:
    rows = [holder(0, 0, 0, 10, 13, 14, key="a"), holder(1, 1, 2, 3, 4, 5, key="b")]
    assert measure_cycle(rows, 0.1).count == 0


def test_nothing_is_measured_of_nothing() -> None:
    assert measure_cycle([], 0.0) == Cycle()
    assert Cycle().ceiling == 0.0


@pytest.mark.parametrize(
    ("changes", "name", "advice"),
    [
        ({}, "offered rate", "--rate 200"),
        ({"cpu": [0.97]}, "offered rate", "--processes 2"),
        ({"acquired": 500, "cpu": [0.97]}, "client CPU", "--processes 2"),
        ({"acquired": 500, "cycle": Cycle(9, 0.01, 0.002, 0.001, 0, 0.98)}, "serialisation", "--work"),
        ({"acquired": 500, "cycle": Cycle(9, 0, 0.02, 0.001, 0, 0.98)}, "serialisation", "faster resource"),
        ({"acquired": 500, "cycle": Cycle(9, 0, 0.002, 0.01, 0, 0.98)}, "serialisation", "redis-queue"),
        ({"seconds": 14.0, "cycle": Cycle(9, 0, 0.002, 0.01, 0, 0.98)}, "serialisation", "redis-queue"),
        ({"acquired": 500, "cycle": Cycle(9, 0, 0.01, 0.01, 8.0, 0.98)}, "frozen holders", "--ttl"),
        ({"acquired": 500, "backlog_max": 9}, "fleet", "--contenders 2000"),
        ({"acquired": 500}, "waiting", "redis-queue"),
        ({"acquired": 10, "failed": 900}, "failures", ""),
        ({"offered": 0, "acquired": 0}, "nothing", ""),
    ],
)
def test_the_bound_is_named_from_measured_terms(changes: dict[str, Any], name: str, advice: str) -> None:
    measured: dict[str, Any] = {
        "offered": 1000,
        "acquired": 1000,
        "failed": 0,
        "backlog_max": 0,
        "seconds": 10.0,
        "cpu": [0.2],
        "cycle": Cycle(),
    }
    bound = find_bound(RunConfig(rate=100, duration=10), **(measured | changes))
    assert bound.name == name
    assert advice in "; ".join(bound.next)


def latencies(lag: float, grant: float, count: int = 1000) -> dict[str, dict[str, float]]:
    """The p99 as given, the p90 a tenth of it, the p50 nothing."""
    return {
        name: {"p50": 0.0, "p90": p99 / 10, "p99": p99, "count": count}
        for name, p99 in (("schedule_lag", lag), ("arrival_to_grant", grant))
    }


def test_a_generator_that_measured_itself_is_not_trusted() -> None:
    assert doubts(latencies(0.1, 0.2)) == [], "less than any process suffers on a busy machine"
    assert doubts(latencies(50, 500)) == [], "small against what was measured"
    (doubt,) = doubts(latencies(50, 60))
    assert "50 ms late at the p99" in doubt
    assert "dropped" in doubts(latencies(0, 0), dropped=3)[0]
    assert doubts(latencies(0, 0), failures=["it died"]) == ["it died"]


def test_a_single_late_arrival_among_a_few_is_no_verdict_on_the_generator() -> None:
    assert doubts(latencies(50, 60, count=60)) == []
    assert "at the p90" in doubts(latencies(500, 600, count=60))[0]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"verdict": "violated"}, 1),
        ({"verdict": "violated", "doubts": ["x"]}, 1),
        ({"verdict": "unknown"}, 3),
        ({"doubts": ["x"]}, 3),
        ({"thresholds": [{"passed": True}, {"passed": False}]}, 4),
        ({"doubts": ["x"], "thresholds": [{"passed": False}]}, 3),
        ({"interrupted": True, "verdict": "violated"}, 130),
    ],
)
def test_the_exit_code_tells_the_gravest_finding(changes: dict[str, Any], code: int) -> None:
    summary = {"verdict": "ok", "doubts": [], "thresholds": [], "interrupted": False}
    assert exit_code(summary | changes) == code


def example(**config: Any) -> dict[str, Any]:
    rows = [*QUEUE, Row(4, 0, -1, "k", 5 * MS, outcome="timed_out")]
    rows[1].error = "something <went> wrong"
    recording = Recording(Counters(offered=5, dispatched=4, acquired=4, timed_out=1, accepted=4))
    recording.total["acquire"].add([1 * MS, 2 * MS, 30 * MS])
    log = [Decision("k", seq, seq) for seq in (1, 2, 3)] + [Decision("k", 4, 1, outcome="stale", seen=3)]
    return build(
        RunConfig(**config),
        command=["python", "-m", "harness", "--threshold", "failed==0"],
        started="2024-01-01T00:00:00+00:00",
        environment={"python": "3.11"},
        fleet=FleetResult(0, recording, [], {"fifo": True}, seconds=2.0, cpu=[0.5], commands=9),
        history=History(rows, log),
        verdict="ok",
        checks={"exclusion": {"verdict": "ok", "findings": []}},
        order={"inversion_ratio": 0.25, "max_overtakes": 3, "kendall_tau": 0.5, "jain_index": 0.9},
        stale_rejections_reported=1,
        failures=[],
        interrupted=False,
    )


def test_the_document_has_every_field_that_other_tools_read() -> None:
    summary = example(thresholds=("failed==0", "acquire.p50>1s"))
    for name in (
        "schema",
        "command",
        "config",
        "environment",
        "verdict",
        "checks",
        "throughput_per_s",
        "duration_s",
    ):
        assert name in summary
    assert set(summary["arrivals"]) >= {
        "offered",
        "dispatched",
        "acquired",
        "timed_out",
        "failed",
        "backlog_max",
    }
    for latency in ("arrival_to_grant", "acquire", "hold", "write", "release", "schedule_lag"):
        assert set(summary["latency_ms"][latency]) >= {"p50", "p90", "p99", "p999", "max", "count"}
    assert summary["resource"]["accepted"] == 3
    assert summary["resource"]["stale_rejections"] == 1
    assert summary["backend"]["commands_per_acquire"] == 2.25
    assert summary["throughput_per_s"] == 2.0
    assert [judgement["passed"] for judgement in summary["thresholds"]] == [True, False]
    assert summary["exit_code"] == 4
    assert summary["errors"] == {"something <went> wrong": 1}
    json.dumps(summary)


def test_without_a_log_of_the_resource_the_replies_count() -> None:
    history = History([holder(0, 0, 0, 1, 2, 3), holder(1, 0, 0, 1, 2, 3, write="stale")], None)
    summary = build(
        RunConfig(),
        command=[],
        started="",
        environment={},
        fleet=FleetResult(0, Recording(), [], {}),
        history=history,
        verdict="unknown",
        checks={},
        order={},
        stale_rejections_reported=None,
        failures=["the resource did not answer"],
        interrupted=False,
    )
    assert (summary["resource"]["accepted"], summary["resource"]["stale_rejections"]) == (1, 1)
    assert summary["backend"]["commands_per_acquire"] is None
    assert summary["exit_code"] == 3


def test_a_summary_is_written_read_and_shown(tmp_path: Path) -> None:
    summary = example(thresholds=("failed==0",))
    write_summary(tmp_path, summary)
    assert read_summary(tmp_path) == json.loads(json.dumps(summary))
    page = write_html(tmp_path).read_text()
    assert page.startswith("<!doctype html>")
    assert "something &lt;went&gt; wrong" in page
    assert "src=" not in page, "self-contained: nothing is loaded from elsewhere"
    assert "http" not in page
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    print_summary(console, summary, "runs/x")
    text = console.export_text()
    for part in (
        "verdict ok",
        "5 offered",
        "1 timed out",
        "acquire",
        "failed==0: passed",
        "runs/x",
        "bounded by",
    ):
        assert part in text
    console.file.close()


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSummary, match="name the folder of a finished run"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(NoSummary, match="not the summary of a run"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(NoSummary, match="cannot read"):
        read_summary(tmp_path)
