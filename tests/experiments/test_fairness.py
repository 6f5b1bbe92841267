"""Experiment 5, and the two locks that it compares real ones with."""

import json
from pathlib import Path
from random import Random

from rich.console import Console

from harness.cli.experiment import perform
from harness.experiments.fairness import judge, ranks
from harness.experiments.fairness.null_models import by_lot, first_come
from harness.history import Row
from harness.judge.checkers.fairness import fairness
from harness.lab.registry import find
from harness.lab.scale.publish import publish, write_overview


def waiting(count: int) -> list[Row]:
    """All come at once, nearly; the last is let in first."""
    return [
        Row(number, 0, number, "hot", number, called=number, granted=1000 * (count - number))
        for number in range(count)
    ]


def test_the_fair_null_model_lets_in_in_order_at_the_same_moments() -> None:
    rows = waiting(50)
    ideal = first_come(rows)
    assert fairness(ideal).inversions == 0
    assert sorted(row.granted or 0 for row in ideal) == sorted(row.granted or 0 for row in rows)


def test_the_lottery_is_as_disordered_as_chance_and_lets_nobody_in_before_they_came() -> None:
    lots = by_lot(waiting(2000), Random(1))
    assert 0.45 < fairness(lots).inversion_ratio < 0.55
    assert all((row.granted or 0) >= row.intended for row in lots)
    assert len({row.id for row in lots}) == 2000


def test_a_lottery_among_one_is_in_order() -> None:
    rows = [
        Row(number, 0, 0, "hot", 100 * number, called=100 * number, granted=100 * number + 1)
        for number in range(20)
    ]
    assert fairness(by_lot(rows, Random(1))).inversions == 0


def test_ranks_are_the_numbers_of_arrival_and_grant() -> None:
    assert ranks(waiting(3)) == [(0, 2), (1, 1), (2, 0)]


def granted(*places: tuple[int, int]) -> list[Row]:
    """(process, place in the order of grants) of arrivals that came one after the other."""
    return [
        Row(number, process, number, "hot", number, called=number, granted=1000 + place)
        for number, (process, place) in enumerate(places)
    ]


def test_the_order_in_words() -> None:
    in_turn = [(number % 2, number) for number in range(100)]
    one_process_after_the_other = [(number % 2, number % 2 * 50 + number // 2) for number in range(100)]
    last_come_first = [(number % 2, -number) for number in range(100)]
    assert judge(granted(*in_turn), None) == "first come first served"
    assert judge(granted(*one_process_after_the_other), None) == "fair in blocks"
    assert judge(granted(*last_come_first), None) == "unfair"


async def test_spin_is_unfair_and_queues_are_fair(tmp_path: Path) -> None:
    console = Console(quiet=True)
    outcome, folder = await perform(find("fairness"), console, out=tmp_path, quick=True, seed=1)
    observed = {case.name: case.observed for case in outcome.ran}
    assert observed["spin"] == "unfair"
    assert observed["strict queue"] == "first come first served"
    assert outcome.as_predicted, observed
    for point in outcome.figures["points"]:
        orders = point["order"]
        assert orders["perfect_fifo"]["inversions"] == 0
        assert {"intended", "called", "random_grant"} <= set(orders)
        if point["setting"] in ("etcd", "zookeeper"):
            assert orders["enqueued"]["inversions"] == 0
    assert {path.name for path in folder.glob("*.svg")} == {"order.svg", "tail-wait.svg"}
    assert (folder / "report.html").is_file()
    published = publish(folder, tmp_path / "results")
    assert [path.name for path in published] == [
        "fairness.json",
        "fairness-order.svg",
        "fairness-tail-wait.svg",
    ]
    kept = json.loads(published[0].read_text())
    assert kept["command"].startswith("python -m harness experiment fairness")
    overview = write_overview(tmp_path / "results").read_text()
    assert kept["answer"] in overview
    assert kept["command"] in overview
    assert "fairness-order.svg" in overview
    assert kept["environment"]["servers"], "the figures say what they were measured with"
