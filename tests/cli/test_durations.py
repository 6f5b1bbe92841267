"""Durations: what a person types and reads."""

import pytest

from harness.durations import format_duration, parse_duration, parse_positive_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("2s", 2.0),
        ("1m", 60.0),
        ("1.5", 1.5),
        ("0", 0.0),
        (".25s", 0.25),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("2 h", 7200.0),
        ("1d", 86400.0),
        (" 3s ", 3.0),
    ],
)
def test_every_unit_and_a_plain_number_of_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "-1s", "1w", "1s2", "ms", "nan", "inf", "1e3", "1,5s"])
def test_anything_else_is_refused_with_the_text_and_the_way_to_write_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write 500ms, 2s, 1m"):
        parse_duration(text)


def test_a_duration_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        parse_duration("9" * 400)


def test_a_positive_duration_refuses_zero() -> None:
    assert parse_positive_duration("1ms") == 0.001
    with pytest.raises(ValueError, match="longer than zero"):
        parse_positive_duration("0ms")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0000123, "12.3 µs"),
        (0.0015, "1.5 ms"),
        (2.0, "2 s"),
        (15.25, "15.2 s"),
        (100, "100 s"),
        (160, "2m 40s"),
        (180, "3m"),
        (-0.002, "-2 ms"),
    ],
)
def test_printed_with_three_digits_and_a_readable_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
