"""Experiment 13: a hold count on the server does not survive its lease; entering ours again says so."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from harness.experiments import reentrancy
from harness.experiments.reentrancy import OURS, RECIPE, SCHEDULES
from harness.experiments.reentrancy.recipe import CountedLock
from harness.experiments.reentrancy.verdict import UPDATE_LOST, inner_grant
from harness.history import load_run
from harness.judge.checkers import run_checks, verdict_of
from harness.lab import Track
from harness.lab.event import Event
from harness.lab.outcome import NOT_SHOWN
from tests.contract.fixtures import until
from tests.experiments.labs import UnfencedLab, quick_lab

EXPIRED, OVERTAKEN, WORKING_ON, FROZEN_INSIDE = (schedule.name for schedule in SCHEDULES)


@pytest.mark.faults
@pytest.mark.slow
async def test_13_every_case_comes_out_as_predicted(tmp_path: Path) -> None:
    async with quick_lab(tmp_path) as lab:
        outcome = await reentrancy.run(lab)
    assert outcome.as_predicted, {case.name: (case.observed, case.reason) for case in outcome.cases}
    cases = {case.name: case for case in outcome.cases}
    assert len(cases) == 16
    refused = cases[f"{RECIPE}, {EXPIRED}, fence on"]
    assert (refused.facts["A was told"], refused.facts["value"]) == ("409 seen 3 got 1", "B")
    # The trap: no stale fence anywhere, and B's acknowledged update is gone.
    laundered = cases[f"{RECIPE}, {OVERTAKEN}, fence on"]
    assert (laundered.observed, laundered.facts["value"]) == (UPDATE_LOST, "A")
    for schedule in (EXPIRED, OVERTAKEN):
        for fence in ("off", "on"):
            assert cases[f"{OURS}, {schedule}, fence {fence}"].facts["the re-entry is"] == "LockLost"
    assert cases[f"{OURS}, {WORKING_ON}, fence off"].facts["value"] == "A B"
    assert cases[f"{OURS}, {FROZEN_INSIDE}, fence off"].observed == "violated"
    for case in outcome.cases:
        assert case.folder is not None
        verdict = verdict_of(run_checks(load_run(tmp_path / case.folder)))
        assert verdict == ("ok" if case.observed == UPDATE_LOST else case.observed), case.name
    assert (tmp_path / "timeline.svg").is_file()


@pytest.mark.faults
async def test_a_resource_that_does_not_compare_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reentrancy, "SCHEDULES", (SCHEDULES[3],))
    async with UnfencedLab(tmp_path) as lab:
        outcome = await reentrancy.run(lab)
    assert not outcome.as_predicted
    for case in outcome.cases:
        assert case.observed == "violated"
        assert case.as_predicted is case.name.endswith("fence off")


@pytest.mark.faults
async def test_a_lock_that_acquires_anew_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe in the place of ours: no case that was to end with LockLost passes."""
    played = SCHEDULES[0]
    swapped = replace(played, predictions=dict.fromkeys((RECIPE, OURS), played.predictions[OURS]))
    monkeypatch.setattr(reentrancy, "SCHEDULES", (swapped,))
    monkeypatch.setattr(reentrancy, "OURS", RECIPE)
    monkeypatch.setattr(reentrancy, "FENCES", ("off",))
    async with quick_lab(tmp_path) as lab:
        outcome = await reentrancy.run(lab)
    assert {case.observed for case in outcome.cases} <= {"violated", NOT_SHOWN}
    assert "Not all of it came out as predicted" in outcome.answer
    assert "No." not in outcome.answer


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


async def test_the_recipe_is_a_fair_one_while_its_lease_lives(redis: Redis) -> None:
    """It excludes, counts, renews, and frees at zero: what it does wrong is not for want of care."""
    key = f"recipe-{time.monotonic_ns()}"
    lock = CountedLock(redis, key, ttl=1.0)
    async with lock as outer:
        first = lock.good_until
        await until(lambda: lock.good_until > first + 1.0)  # renewed again and again
        assert outer.held
        async with lock as inner:
            assert (inner.depth, inner.fence) == (2, outer.fence)
        assert await redis.hget(key, "count") == "1"
    assert lock.owned
    assert not await redis.exists(key)
    assert not outer.held


async def test_the_recipes_inner_exit_stops_renewal(redis: Redis) -> None:
    key = f"recipe-{time.monotonic_ns()}"
    lock = CountedLock(redis, key, ttl=0.2)
    async with lock:
        async with lock:
            pass

        async def gone() -> bool:
            return not await redis.exists(key)

        await until(gone)
    assert not lock.owned


async def test_the_recipe_counts_from_one_when_its_lease_has_ended(redis: Redis) -> None:
    key = f"recipe-{time.monotonic_ns()}"
    lock = CountedLock(redis, key, ttl=30.0)
    async with lock as outer:
        await redis.delete(key)  # as its end does
        async with lock as inner:
            assert (inner.depth, inner.fence) == (1, outer.fence + 1)
            assert not outer.held
        assert not await redis.exists(key), "freed although the outer block goes on"


def track(*events: tuple[str, dict[str, object]]) -> Track:
    made = Track("A", "key")
    for at, (name, details) in enumerate(events):
        made.add(Event(at, name, details))
    return made


def test_a_re_entry_that_is_a_grant_of_its_own_has_a_row_of_its_own() -> None:
    a = track(
        ("acquiring", {}),
        ("granted", {"fence": 1, "owner": "o/1"}),
        ("re-entering", {}),
        ("re-entered", {"fence": 3, "owner": "o/3"}),
        ("writing", {"fence": 3, "held": True}),
        ("accepted", {"fence": 3}),
        ("left", {}),
        ("released", {"owned": False}),
    )
    inner = inner_grant(a)
    assert inner is not None
    assert [event.name for event in inner.events] == [
        "acquiring",
        "granted",
        "writing",
        "accepted",
        "released",
    ]
    assert [event.name for event in a.events] == ["acquiring", "granted", "released"]


def test_a_re_entry_of_the_same_holding_has_none() -> None:
    a = track(
        ("acquiring", {}),
        ("granted", {"fence": 1, "owner": "o"}),
        ("re-entering", {}),
        ("re-entered", {"fence": 1, "owner": "o"}),
        ("left", {}),
        ("released", {"owned": True}),
    )
    assert inner_grant(a) is None
    assert len(a.events) == 6
