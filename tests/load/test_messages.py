"""What a run and its processes say to each other comes out at the other end as it went in."""

import json
from pathlib import Path

from harness.config import RunConfig
from harness.history import Fault
from harness.history.recording import Counters
from harness.load.messages import MemberProgress, MemberReport, Orders
from harness.load.pauses import PauseCounts, Tally
from harness.load.result import all_together


def test_orders() -> None:
    orders = Orders(
        config=RunConfig(backend="etcd", rate=20.0, stages=("5/1s",)),
        url="etcd://h:1",
        resource_url="http://h:2",
        process=1,
        folder=Path("runs/1"),
        freezes=["pause:holder@5s+2s"],
        path=["/here"],
    )
    assert Orders.from_json(json.loads(json.dumps(orders.to_json()))) == orders


def test_progress() -> None:
    progress = MemberProgress(
        at=5,
        counters=Counters(offered=3, stale=1),
        offered_per_s=1.0,
        acquired_per_s=2.0,
        busy=1,
        waiting=0,
        recent={"acquire": "text"},
        lock={"waits": {}},
    )
    assert MemberProgress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


def test_the_last_report() -> None:
    report = MemberReport(
        cpu=0.5,
        seconds=1.0,
        dropped=0,
        faults=[Fault("holder frozen", 1, 2, {"who": "process 0"})],
        pauses=PauseCounts(stalls=Tally(1, 0.5, 0.5), run_delay=0.1),
        max_loop_lag=0.0,
        commands=None,
        died="",
    )
    assert MemberReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_sum_of_which_a_part_is_not_known_is_not_known() -> None:
    assert all_together([1, 2]) == 3
    assert all_together([1, None]) is None
    assert all_together([]) == 0
