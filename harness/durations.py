"""Durations as a person types and reads them."""

from asyncdlock._durations import parse_duration as parse_duration
from asyncdlock._durations import parse_positive_duration as parse_positive_duration


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
