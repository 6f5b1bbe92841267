"""Depth-first over the choices of a program: every path that leaves the usual one so many times at most."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Path:
    """The choices of one run: those that are given, then the first alternative each time."""

    __slots__ = ("_given", "taken", "widths")

    def __init__(self, given: Sequence[int] = ()) -> None:
        self._given = given
        self.taken: list[int] = []
        self.widths: list[int] = []

    def choose(self, alternatives: int) -> int:
        """Which of so many alternatives it is this time; the first is the usual one."""
        number = len(self.taken)
        choice = self._given[number] if number < len(self._given) else 0
        assert choice < alternatives, "the program does not do the same each time"
        self.taken.append(choice)
        self.widths.append(alternatives)
        return choice

    def following(self, deviations: int) -> list[int] | None:
        """The next path in depth-first order with at most so many choices other than the first."""
        spent = sum(choice > 0 for choice in self.taken)
        for number in range(len(self.taken) - 1, -1, -1):
            choice = self.taken[number]
            spent -= choice > 0
            if spent < deviations and choice + 1 < self.widths[number]:
                return [*self.taken[:number], choice + 1]
        return None


class Explored(NamedTuple):
    """What a search found."""

    paths: int
    steps: int
    violation: str
    """Empty: no path breaks anything."""
    path: tuple[int, ...]
    """The one that does."""


def explore(run: Callable[[Path], tuple[int, str]], *, deviations: int, most: int) -> Explored:
    """Run every path; `run` returns how many steps it took and what it broke.

    :raises RuntimeError: there are more than `most` paths: what is not finished shows nothing.
    """
    steps = 0
    given: list[int] | None = []
    for number in range(1, most + 1):
        assert given is not None
        path = Path(given)
        took, violation = run(path)
        steps += took
        if violation:
            return Explored(number, steps, violation, tuple(path.taken))
        given = path.following(deviations)
        if given is None:
            return Explored(number, steps, "", ())
    raise RuntimeError(f"more than {most:,} paths")
