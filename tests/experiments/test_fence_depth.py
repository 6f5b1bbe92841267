"""Experiment 14: fence every operation, or lose acknowledged updates."""

from pathlib import Path

import pytest

from harness.experiments import fence_depth
from harness.experiments.fence_depth import KEEPS, LOSES, schedules
from harness.experiments.fence_depth.schedules import older_writes_first
from harness.lab import shared_set
from tests.experiments.labs import quick_lab


async def test_only_every_operation_or_check_and_set_keeps_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_depth, "QUICK_UPDATES", 8)
    async with quick_lab(tmp_path) as lab:
        outcome = await fence_depth.run(lab)
    assert outcome.as_predicted, {case.name: (case.observed, dict(case.facts)) for case in outcome.cases}
    cases = {case.name: case for case in outcome.cases}
    # The trap: fences in order, every acknowledged write in the log, and an update gone all the same.
    trap = cases["writes only, older writes first"]
    assert (trap.observed, trap.facts["the log looks"]) == (LOSES, "ok")
    assert cases["every operation, older writes first"].facts["refused (409)"] == 1
    assert cases["check-and-set, older writes first"].facts["conflicts (412)"] == 1
    assert (tmp_path / "timeline.svg").is_file()
    # The stores' own guards: the same trap, and the same way out where a read can be noted.
    for kind in ("postgres row", "s3 object"):
        assert cases[f"{kind}: writes only, older writes first"].facts["lost"] == 1
        assert cases[f"{kind}: writes only, younger writes first"].facts["refused (409)"] == 1
    assert cases["postgres row: every operation, older writes first"].facts["refused (409)"] == 1


async def test_a_resource_that_does_not_fence_reads_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tampered = {**shared_set.RESOURCE_FENCE, "every operation": "writes"}
    monkeypatch.setattr(schedules, "RESOURCE_FENCE", tampered)
    async with quick_lab(tmp_path) as lab:
        case = await fence_depth._case(
            lab, "every operation", "older writes first", older_writes_first, KEEPS
        )
    assert case.observed == LOSES
    assert not case.as_predicted
