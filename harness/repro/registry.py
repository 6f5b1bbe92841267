"""Finds the reproductions of this folder: one module each, with a function under `@reproduction`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from harness.config import UsageError
from harness.lab import Lab
from harness.lab.modules import load_all
from harness.repro.finding import Finding

Run = Callable[[Lab], Awaitable[Finding]]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A figure that somebody has published, and how to measure it again."""

    name: str
    about: str
    published: str
    source: str
    claim: str
    """What we say of ours."""
    run: Run


_REPRODUCTIONS: dict[str, Reproduction] = {}


def reproduction(*, name: str, about: str, published: str, source: str, claim: str) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        _REPRODUCTIONS[name] = Reproduction(name, about, published, source, claim, run)
        return run

    return register


def reproductions() -> Mapping[str, Reproduction]:
    """All by name: whatever a module of this folder registers."""
    load_all("harness.repro")
    return dict(sorted(_REPRODUCTIONS.items()))


def find(name: str) -> Reproduction:
    """:raises UsageError: there is none of that name."""
    known = reproductions()
    if name not in known:
        raise UsageError(f"there is no reproduction {name!r}: there are {', '.join(known)}")
    return known[name]
