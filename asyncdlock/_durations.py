"""Durations as a person types them: `500ms`, `2s`, `1m`, `1h`, `1d`, or a plain number of seconds."""

import math
import re

_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|ms|s|m|h|d)?\s*")


def parse_duration(text: str) -> float:
    """Seconds.

    :raises ValueError: not a duration, negative, or not finite.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 500ms, 2s, 1m or a number of seconds")
    number, unit = match.groups()
    seconds = float(number) * _UNITS[unit or "s"]
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is too long a duration")
    return seconds


def parse_positive_duration(text: str) -> float:
    """Seconds, more than none.

    :raises ValueError: as `parse_duration`, and for zero.
    """
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} must be longer than zero")
    return seconds
