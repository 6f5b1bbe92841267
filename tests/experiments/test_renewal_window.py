"""Experiment 8: renewal and check() narrow the window for writes that come too late, and do not close it."""

import random
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.experiments import renewal_window
from harness.experiments.renewal_window.arms import ARMS, draw_trials
from harness.experiments.renewal_window.picture import draw
from tests.experiments.labs import quick_lab

PAUSES = (0.3, 2.0)


@pytest.mark.faults
async def test_the_window_narrows_and_never_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal_window, "QUICK_PAUSES", PAUSES)
    monkeypatch.setattr(renewal_window, "QUICK_REPETITIONS", 2)
    async with quick_lab(tmp_path) as lab:
        outcome = await renewal_window.run(lab)
    assert outcome.as_predicted, {
        case.name: (case.observed, dict(case.facts)) for case in outcome.cases if not case.as_predicted
    }
    cases = {case.name: case for case in outcome.cases}
    assert cases["all trials, fence off"].observed == "violated"
    assert cases["all trials, fence on"].observed == "ok"
    assert cases["renewal and check() do not close it"].as_predicted
    assert (tmp_path / "timeline.svg").is_file()


def test_a_seed_means_the_same_trials_and_another_seed_means_others() -> None:
    first, again, other = (draw_trials(random.Random(seed), PAUSES, 4) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_arm_is_tried_with_every_pause_with_and_without_fence() -> None:
    trials = draw_trials(random.Random(1), PAUSES, 2)
    assert {(t.arm, t.pause, t.fence) for t in trials} == set(product(ARMS, PAUSES, ("off", "on")))


def test_the_picture_has_a_cell_for_every_arm_and_pause() -> None:
    cells = dict.fromkeys(product(ARMS, PAUSES), (1, 4))
    svg = ElementTree.fromstring(draw(cells, PAUSES, ttl=0.5))
    texts = ["".join(element.itertext()) for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(text.startswith("1/4") for text in texts) == len(ARMS) * len(PAUSES)
    assert "longer than the TTL" in texts
