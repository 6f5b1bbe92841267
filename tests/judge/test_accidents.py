"""Accidents that a history names excuse what they break, and nothing else."""

from typing import Any

import pytest

from harness.history import Decision, Fault, History, Row
from harness.judge.checkers import run_checks

MS = 1_000_000


def row(number: int, called: int, granted: int, until: int, fence: int) -> Row:
    """Held from `granted` until `until`, in milliseconds; it writes at the end."""
    return Row(
        number,
        0,
        0,
        "k",
        called * MS,
        called=called * MS,
        granted=granted * MS,
        write_sent=until * MS,
        write_done=until * MS,
        released=until * MS,
        owner=f"o{number}",
        fence=fence,
        outcome="stale" if number == 0 else "ok",
        write="stale" if number == 0 else "accepted",
        releasing=until * MS,
        valid_until=until * MS,
    )


def verdicts(first: Row, second: Row, **effect: Any) -> tuple[str, str]:
    faults = [Fault("an accident", 50 * MS, 60 * MS, effect)]
    checks = run_checks(History(rows=[first, second], log=[], faults=faults))
    return checks["holders"].verdict, checks["fence_order"].verdict


@pytest.mark.parametrize(
    ("effect", "holders"),
    [({}, "violated"), ({"frees": "other"}, "violated"), ({"frees": "k"}, "ok"), ({"frees": True}, "ok")],
)
def test_a_second_holder_is_excused_where_the_lock_was_taken_away(
    effect: dict[str, Any], holders: str
) -> None:
    assert verdicts(row(0, 0, 1, 100, 1), row(1, 70, 71, 80, 2), **effect) == (holders, "ok")


def test_an_overlap_before_the_accident_is_not_excused() -> None:
    assert verdicts(row(0, 0, 1, 100, 1), row(1, 10, 20, 30, 2), frees="k")[0] == "violated"


@pytest.mark.parametrize(
    ("effect", "order"),
    [
        ({}, "violated"),
        ({"forgets": "other"}, "violated"),
        ({"forgets": "k"}, "ok"),
        ({"frees": "k"}, "violated"),
    ],
)
def test_fences_may_begin_anew_where_they_were_forgotten(effect: dict[str, Any], order: str) -> None:
    found = verdicts(row(0, 0, 1, 10, 7), row(1, 70, 71, 80, 1), **effect)
    assert found == (order, order)


def test_a_fence_that_was_granted_again_was_shown_by_its_first_holder() -> None:
    """Who read with fence 2 made the resource refuse fence 1; a lost counter brought fence 2 once more."""
    reader = row(1, 10, 20, 30, 2)
    reader.outcome, reader.write, reader.write_sent, reader.write_done = "abandoned", "none", None, None
    refused = Decision(
        "k", 1, 1, 0, "stale", seen=2, version=0, started=99 * MS, decided=100 * MS, owner="o0"
    )
    second = Decision(
        "k", 2, 2, 0, "accepted", seen=2, version=1, started=219 * MS, decided=220 * MS, owner="o2"
    )
    rows, log = [row(0, 0, 1, 100, 1), reader, row(2, 200, 210, 220, 2)], [refused, second]
    faults = [Fault("an accident", 50 * MS, 60 * MS, {"forgets": "k", "frees": "k"})]
    check = run_checks(History(rows=rows, log=log, faults=faults))["completeness"]
    assert not any("another run's marks" in finding for finding in check.findings)
