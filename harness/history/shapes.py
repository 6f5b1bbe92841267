"""Whether the values of a row are of the kinds that its columns hold.

JSON also carries NaN, and whatever a hand or another program wrote: a fence that is a string compares
with nothing, a time that is NaN with nothing in particular.
"""

from collections.abc import Mapping
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from harness.history.rows import DECISION_COLUMNS, ROW_COLUMNS, Decision, Fault, Line, Row, Value

_DECISION_OUTCOMES = frozenset({"accepted", "stale", "repeated", "conflict"})


def _types(hint: Any) -> frozenset[type]:
    """The exact types that a column of this annotation holds: a `bool` is no `int` here."""
    if get_origin(hint) is Literal:
        return frozenset({str})
    if get_origin(hint) in (Union, UnionType):
        return frozenset().union(*map(_types, get_args(hint)))
    return frozenset({hint})


def _words(hint: Any) -> frozenset[str] | None:
    return frozenset(get_args(hint)) if get_origin(hint) is Literal else None


class Shape:
    """The kinds of one sort of line. Those met before are recognised at once: about 1 µs a row."""

    def __init__(self, kind: type[Line], columns: tuple[str, ...]) -> None:
        hints = get_type_hints(kind)
        self._columns = columns
        self._values = attrgetter(*columns)
        self._types = {name: _types(hints[name]) for name in columns}
        self._words = {name: words for name in columns if (words := _words(hints[name]))}
        if kind is Decision:
            self._words["outcome"] = _DECISION_OUTCOMES
        self._said = attrgetter(*self._words) if self._words else lambda line: None
        self._known: set[tuple[type, ...]] = set()
        self._known_words: set[object] = {None}

    def complaint(self, line: Line) -> str | None:
        """What is wrong with the line's values; `None` when nothing is."""
        types = tuple(map(type, self._values(line)))
        if types not in self._known:
            for name, found in zip(self._columns, types, strict=True):
                if found not in self._types[name]:
                    wanted = " or ".join(
                        sorted("nothing" if kind is NoneType else kind.__name__ for kind in self._types[name])
                    )
                    return f"its {name} is {getattr(line, name)!r}, not {wanted}"
            self._known.add(types)
        said = self._said(line)
        if said not in self._known_words:
            for name, words in self._words.items():
                if getattr(line, name) not in words:
                    return f"its {name} is {getattr(line, name)!r}, not one of {', '.join(sorted(words))}"
            self._known_words.add(said)
        return None


SHAPES: Mapping[type, Shape] = {
    Row: Shape(Row, ROW_COLUMNS),
    Decision: Shape(Decision, DECISION_COLUMNS),
    Value: Shape(Value, ("key", "version", "digest")),
    Fault: Shape(Fault, ("name", "at", "until")),
}
