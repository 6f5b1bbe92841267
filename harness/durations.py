"""Durations as a person types them: `500ms`, `2s`, `1m`, or a plain number of seconds."""

import math
import re

_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|ms|s|m|h)?\s*")


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


def format_duration(seconds: float) -> str:
    """The shortest spelling that keeps three digits: `1.5 ms`, `2 s`, `1m 40s`."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}m {rest}s" if rest else f"{minutes}m"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"
