"""Options of a lock URL: given in its query or by name, and read the same way by every backend.

A backend says what it takes in a table of names and readers, and gets values back, or one sentence that says
what is wrong: with the option's name, never with a password.
"""

import math
import os
import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

Reader = Callable[[str, Any], Any]
"""From an option's name and what was given for it to its value; raises ValueError."""

_FLAGS = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}
_WHOLE = re.compile(r"[0-9]{1,18}")


def gather(query: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the query says and what was given by name; the name wins."""
    return {**dict(parse_qsl(query, keep_blank_values=True)), **options}


def read(given: Mapping[str, Any], known: Mapping[str, Reader], *, scheme: str) -> dict[str, Any]:
    """The values of all options that were given.

    :raises ValueError: an unknown option, or an invalid value.
    """
    left = dict(given)
    values = take(left, known)
    for name in left:
        raise unknown(name, scheme, sorted(known))
    return values


def take(given: MutableMapping[str, Any], known: Mapping[str, Reader]) -> dict[str, Any]:
    """The same for only the known options, which are removed from `given`: the rest is somebody else's.

    `None` counts as not given.

    :raises ValueError: an invalid value.
    """
    found = {name: given.pop(name) for name in known if name in given}
    return {name: known[name](name, value) for name, value in found.items() if value is not None}


def merge(values: MutableMapping[str, Any], name: str, former: str) -> None:
    """Let the option `former`, which is another spelling of `name`, count as that.

    :raises ValueError: both were given.
    """
    if former in values:
        if name in values:
            raise ValueError(f"{name} and {former} mean the same: give one of them")
        values[name] = values.pop(former)


def unknown(name: str, scheme: str, takes: list[str]) -> ValueError:
    """The error for an option that nobody takes."""
    return ValueError(f"unknown option {name!r} for {scheme}://: it takes {', '.join(takes)}")


# Readers


def flag(name: str, value: Any) -> bool:
    """True or false, in the usual words."""
    word = str(value).lower()
    if word not in _FLAGS:
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return _FLAGS[word]


def text(name: str, value: Any) -> str:
    """Any text. It may be a password, so an error shows only its type."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {type(value).__name__}")
    return value


def path(name: str, value: Any) -> str:
    """The name of a file, as text or as a path."""
    try:
        return os.fsdecode(value)
    except TypeError:
        raise ValueError(f"{name} must be a path, not {type(value).__name__}") from None


def count(least: int = 0, most: int | None = None) -> Reader:
    """A whole number of `least` to `most`."""
    bounds = f"of at least {least}" if most is None else f"of {least}..{most}"

    def reader(name: str, value: Any) -> int:
        number = int(value) if _WHOLE.fullmatch(str(value)) else -1
        if number < least or (most is not None and number > most):
            raise ValueError(f"{name} must be a whole number {bounds}, not {value!r}")
        return number

    return reader


def seconds(most: float = math.inf) -> Reader:
    """A length of time, finite and above zero."""
    bounds = "" if most == math.inf else f" up to {most:g}"

    def reader(name: str, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 < number <= most or number == math.inf:
            raise ValueError(f"{name} must be a positive number of seconds{bounds}, not {value!r}")
        return number

    return reader


def one_of(*words: str) -> Reader:
    """One of these words."""

    def reader(name: str, value: Any) -> str:
        if value not in words:
            raise ValueError(f"{name} must be {' or '.join(words)}, not {value!r}")
        return str(value)

    return reader
