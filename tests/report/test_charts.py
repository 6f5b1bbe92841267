"""Charts: round axes, well-formed pictures, and nothing that a reader could not see."""

import math
from xml.etree import ElementTree

import pytest

from harness.report.charts import MAX_DOTS, Series, bars, lines, scatter
from harness.report.svg import Scale, number, round_ticks, spread

_SVG = "{http://www.w3.org/2000/svg}"


def test_ticks_are_round_and_inside() -> None:
    assert round_ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert round_ticks(0.13, 0.87) == [0.2, 0.4, 0.6, 0.8]
    assert round_ticks(5, 5) == [5]


def test_a_logarithmic_axis_has_powers_of_ten() -> None:
    assert Scale(0.5, 20_000, 0, 100, log=True).ticks() == [1, 10, 100, 1000, 10_000]


@pytest.mark.parametrize("log", [False, True])
def test_a_scale_maps_its_ends_to_its_pixels_and_stays_within(log: bool) -> None:
    scale = Scale(1, 100, 50, 450, log=log)
    assert scale(1) == pytest.approx(50)
    assert scale(100) == pytest.approx(450)
    assert scale(1e9) == pytest.approx(450)
    assert math.isfinite(scale(0))


def test_a_range_without_values_or_with_one_can_be_drawn() -> None:
    assert spread([]) == (0.0, 1.0)
    assert spread([], log=True) == (1.0, 10.0)
    low, high = spread([7.0], log=True)
    assert low < 7.0 < high


def test_numbers_are_short() -> None:
    assert [number(value) for value in (0.25, 20, 1500, 2_000_000)] == ["0.25", "20", "1.5k", "2M"]


def test_lines_draw_a_path_per_series_and_a_dot_per_point() -> None:
    series = [Series("a", [(1, 1), (2, 4)]), Series("b", [(1, 2), (2, 3)], dashed=True)]
    root = ElementTree.fromstring(lines("title", series, x_label="x", y_label="y"))
    assert len(root.findall(f"{_SVG}path")) == 2
    assert len(root.findall(f"{_SVG}circle")) == 4


def test_words_cannot_break_out_of_the_picture() -> None:
    picture = lines('<&">', [Series("</svg>", [(0, 0), (1, 1)])], x_label="<", y_label="&")
    texts = [element.text for element in ElementTree.fromstring(picture).findall(f"{_SVG}text")]
    assert '<&">' in texts
    assert "</svg>" in texts


def test_a_cloud_is_thinned_out_but_keeps_its_shape() -> None:
    points = [(float(place), float(place)) for place in range(50_000)]
    paths = ElementTree.fromstring(
        scatter("title", [Series("", points)], x_label="x", y_label="y", diagonal=True)
    ).findall(f"{_SVG}path")
    dots = [dot.split() for dot in paths[-1].attrib["d"].removeprefix("M").split("M")]
    assert MAX_DOTS * 0.9 <= len(dots) <= MAX_DOTS * 1.1
    assert float(dots[0][0]) < 100
    assert float(dots[-1][0]) > 550


def test_bars_have_the_heights_of_their_values() -> None:
    picture = bars("title", {"one": {"a": 10.0, "b": 20.0}, "two": {"a": 0.0}}, y_label="y")
    found = [
        element
        for element in ElementTree.fromstring(picture).findall(f"{_SVG}rect")
        if element.find(f"{_SVG}title") is not None
    ]
    heights = [float(element.attrib["height"]) for element in found]
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.01)
    assert heights[2] == 1.0, "a bar of nothing can still be pointed at"


@pytest.mark.parametrize("log", [False, True])
def test_a_chart_of_nothing_is_still_a_chart(log: bool) -> None:
    ElementTree.fromstring(lines("empty", [Series("a", [])], x_label="", y_label="", log_x=log, log_y=log))
    ElementTree.fromstring(bars("empty", {}, y_label="", log_y=log))
