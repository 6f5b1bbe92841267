"""What is kept in the repository is kept in few lines, and is still what was measured."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.report.compact_json import WIDTH, compact_json

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
FIGURES = sorted(RESULTS.rglob("*.json"))
PICTURES = sorted(RESULTS.rglob("*.svg"))
LONGEST = 500


def test_a_record_is_a_line_and_a_new_one_adds_one() -> None:
    rows = [{"seed": number, "findings": ["größer"], "seconds": 0.5} for number in range(100)]
    before, after = ({"name": "storm", "rows": some} for some in (rows, [*rows, rows[0]]))
    told = compact_json(after)
    assert json.loads(told) == after
    assert len(told.splitlines()) == len(compact_json(before).splitlines()) + 1
    assert max(map(len, told.splitlines())) <= WIDTH


def test_what_fits_is_one_line_and_what_cannot_be_opened_stays_one() -> None:
    assert compact_json({"a": [1, {"b": None}]}) == '{"a": [1, {"b": null}]}'
    assert compact_json("x" * 2 * WIDTH) == f'"{"x" * 2 * WIDTH}"'


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_published_figures_are_compact(path: Path) -> None:
    text = path.read_text()
    assert text == compact_json(json.loads(text)) + "\n"
    assert len(text.splitlines()) < LONGEST


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_published_pictures_are_small(path: Path) -> None:
    text = path.read_text()
    ElementTree.fromstring(text)
    assert len(text.splitlines()) == 1
    assert len(text) < 50_000
