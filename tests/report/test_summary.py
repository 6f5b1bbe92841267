"""The summary: figures, what bounded the run, whether to trust it, and the exit code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.config import RunConfig
from harness.history import Decision, History, Row
from harness.history.recorder import Counters, Recording
from harness.judge.bounds import SERVERS, Bound, advised, find_bound
from harness.judge.checkers.result import CheckResult
from harness.judge.cycle import Cycle, busiest_key, measure_cycle
from harness.judge.under_way import UnderWay, measure_under_way
from harness.load.result import FleetResult
from harness.report.html import write_html
from harness.report.model import Judgement, Summary
from harness.report.summary import build, exit_code
from harness.report.summary_json import NoSummary, read_summary, to_json, write_summary
from harness.report.terminal import print_summary

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
    assert cycle.ceiling == pytest.approx(4 / (0.015 + 0.017 + 0.014 + 0.008)), "over all holds"
    assert cycle.utilisation == pytest.approx((15 + 17 + 14 + 8) / 100)


def test_the_ceiling_of_a_key_is_never_below_what_it_did() -> None:
    """Where nobody waits the next holder may come sooner than a waiter who has to be woken."""
    rows = [holder(0, 0, 0, 1, 2, 3), holder(1, 1, 13, 14, 15, 16)]
    rows += [holder(n, 4 * n + 9, 4 * n + 9, 4 * n + 10, 4 * n + 11, 4 * n + 12) for n in range(2, 20)]
    seconds = 0.088
    assert measure_cycle(rows, seconds).ceiling >= len(rows) / seconds


def test_the_bound_is_found_on_the_key_that_everybody_wants() -> None:
    hot = [holder(n, 0, 10 * n, 10 * n + 4, 10 * n + 8, 10 * n + 9, key="hot") for n in range(100)]
    cold = [holder(100 + n, n, n, n + 1, n + 2, n + 3, key=f"cold-{n}") for n in range(400)]
    rows = [*hot, *cold]
    cycle = measure_cycle(rows, 1.0)
    assert cycle.utilisation < 0.05
    found = busiest_key(rows, 1.0)
    assert found is not None
    assert found[0] == "hot"
    bound = find_bound(
        RunConfig(rate=1000, duration=1, keys=1000),
        offered=1000,
        acquired=500,
        failed=0,
        backlog_max=0,
        seconds=1.0,
        cpu=[0.2],
        cycle=cycle,
        busiest_key=found,
    )
    assert bound.name == "serialisation"
    assert "key 'hot' was in use 100% of the time" in bound.because
    assert "at most 100 per second" in bound.because


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


CROWDED = UnderWay(990, 0.01, 0.02, 0.01)
HELD_BACK = UnderWay(100, 0.01, 0.02, 0.005)


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
        ({"acquired": 500, "backlog_max": 9, "under_way": CROWDED}, "fleet", "--contenders 2000"),
        (
            {"acquired": 500, "backlog_max": 9, "under_way": HELD_BACK},
            "servers",
            "--rate 50 (what was served)",
        ),
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
    bound = find_bound(RunConfig(backend="redis", rate=100, duration=10), **(measured | changes))
    assert bound.name == name
    assert advice in "; ".join(bound.next)


PASSED = Judgement("failed==0", True, 0.0, "failed==0: passed, it was 0", "0")
FAILED = Judgement("acquire.p99<1us", False, 4.82, "acquire.p99<1us: failed, it was 4.82 ms", "4.82 ms")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"verdict": "violated"}, 1),
        ({"verdict": "violated", "doubts": ("x",)}, 1),
        ({"verdict": "unknown"}, 3),
        ({"doubts": ("x",)}, 3),
        ({"thresholds": (PASSED, FAILED)}, 4),
        ({"doubts": ("x",), "thresholds": (FAILED,)}, 3),
        ({"interrupted": True, "verdict": "violated"}, 130),
    ],
)
def test_the_exit_code_tells_the_gravest_finding(changes: dict[str, Any], code: int) -> None:
    assert exit_code(replace(Summary(schema="", verdict="ok"), **changes)) == code


def example(**config: Any) -> Summary:
    rows = [*QUEUE, Row(4, 0, -1, "k", 5 * MS, outcome="timed_out")]
    rows[1].error = "something <went> wrong"
    recording = Recording(Counters(offered=5, dispatched=4, acquired=4, timed_out=1, accepted=4))
    recording.total["acquire"].add([1 * MS, 2 * MS, 30 * MS])
    recording.total["arrival_to_grant"].add([1 * MS, 2 * MS, 14 * MS, 30 * MS])
    log = [Decision("k", seq, seq) for seq in (1, 2, 3)] + [Decision("k", 4, 1, outcome="stale", seen=3)]
    return build(
        RunConfig(**config),
        command=["python", "-m", "harness", "--threshold", "failed==0"],
        started="2024-01-01T00:00:00+00:00",
        environment={"python": "3.11"},
        fleet=FleetResult(0, recording, [], {"fifo": True}, seconds=2.0, cpu=[0.5], commands=9),
        history=History(rows, log),
        checks={"exclusion": CheckResult("ok")},
        stale_rejections_reported=1,
        failures=[],
        interrupted=False,
    )


def test_the_document_has_every_field_that_other_tools_read() -> None:
    summary = to_json(example(thresholds=("failed==0", "acquire.p50>1s")))
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
        checks={},
        stale_rejections_reported=None,
        failures=["the resource did not answer"],
        interrupted=False,
    )
    assert (summary.resource.accepted, summary.resource.stale_rejections) == (1, 1)
    assert summary.backend.commands_per_acquire is None
    assert summary.exit_code == 3
    assert summary.verdict == "unknown"


def test_a_summary_is_written_read_and_shown(tmp_path: Path) -> None:
    summary = example(thresholds=("failed==0",))
    write_summary(tmp_path, summary)
    assert read_summary(tmp_path) == summary
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


def test_those_who_gave_up_count_with_what_they_waited_at_least() -> None:
    summary = example(timeout=1.0)
    waits = summary.latency_ms.arrival_to_grant
    assert waits.granted is not None
    assert (waits.count, waits.granted.count) == (5, 4)
    assert waits.max == 1000.0
    assert waits.bounds == ("p90", "p99", "p999", "max")
    assert waits.p50 < 1000.0


def test_throughput_is_of_the_time_in_which_arrivals_came() -> None:
    summary = example(duration=0.05)
    assert (summary.throughput_per_s, summary.drained, summary.drain_s) == (60.0, 1, 1.95)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSummary, match="name the folder of a finished run"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(NoSummary, match="not the summary of a run"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(NoSummary, match="cannot read"):
        read_summary(tmp_path)


@pytest.mark.parametrize(
    ("config", "changes", "advice"),
    [
        (
            RunConfig(fence=False),
            {"violated": True},
            ["--fence on (the same load, made safe by the resource)"],
        ),
        (RunConfig(), {"violated": True}, []),
        (
            RunConfig(backend="redis"),
            {"timed_out": 51},
            [
                "--backend redis-queue (waiters are woken, nobody polls)",
                "--contenders 100 (fewer that poll at once)",
            ],
        ),
        (RunConfig(backend="redis"), {"timed_out": 50}, []),
        (RunConfig(backend="redis-queue"), {"timed_out": 500}, []),
        (RunConfig(backend="redlock", contenders=10), {"timed_out": 500}, []),
    ],
)
def test_what_to_try_next_depends_on_how_the_run_came_out(
    config: RunConfig, changes: dict[str, Any], advice: list[str]
) -> None:
    told = {"violated": False, "timed_out": 0, "offered": 1000} | changes
    assert advised(Bound("waiting", "…", ["--keys 10"]), config, **told).next == [*advice, "--keys 10"]


def test_nobody_is_told_to_take_fewer_contenders_and_more() -> None:
    fleet, told = Bound("fleet", "…", ["--contenders 2000"]), {"timed_out": 500, "offered": 1000}
    found = advised(fleet, RunConfig(backend="redis"), violated=False, **told)
    assert [advice for advice in found.next if advice.startswith("--contenders")] == [
        "--contenders 100 (fewer that poll at once)"
    ]
    assert advised(replace(fleet, name=SERVERS), RunConfig(backend="redis"), violated=False, **told).next == [
        "--contenders 2000"
    ]


def test_what_is_under_way_is_counted_by_what_was_served() -> None:
    rows = [holder(n, n, n + 1, n + 3, n + 6, n + 10) for n in range(0, 100, 2)]
    found = measure_under_way(rows, 0.1)
    assert found.contenders == pytest.approx(5.0)
    assert (found.acquire, found.write, found.release) == pytest.approx((0.001, 0.003, 0.004))
