"""What a reproduction found out: figures of ours beside the published one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.judge.statistics import share, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One way of doing it, counted: in `events` of `trials` the thing happened."""

    name: str
    events: int
    trials: int
    what: str
    """What is counted, as in `acknowledged updates lost`."""
    detail: str = ""
    holds: bool = True
    """Whether it is what we claim or predict of this way."""

    def __str__(self) -> str:
        text = f"{share(self.events, self.trials)} {self.what}"
        return f"{text}; {self.detail}" if self.detail else text

    def to_json(self) -> dict[str, Any]:
        low, high = wilson(self.events, self.trials)
        return {
            "name": self.name,
            "events": self.events,
            "trials": self.trials,
            "what": self.what,
            "share": self.events / self.trials if self.trials else None,
            "wilson_95": [low, high],
            "detail": self.detail,
            "holds": self.holds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    figures: Sequence[Figure]
    differs: Sequence[str]
    """How our setting departs from the published one, a sentence each."""

    @property
    def holds(self) -> bool:
        """Something was measured, and all of it came out as claimed."""
        return any(figure.trials for figure in self.figures) and all(figure.holds for figure in self.figures)
