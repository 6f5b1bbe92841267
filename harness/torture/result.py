"""The outcome of one round."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.judge.checkers import Verdict
from harness.torture.plan import RoundPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    plan: RoundPlan
    verdict: Verdict
    findings: Sequence[str]
    faults: Counter[str]
    failures: Sequence[str]
    """Faults that did not come about."""
    visited: Counter[str]
    grants: int
    acknowledged: int
    refused: int
    unknown_writes: int
    excused: int
    """Holds that an accident cut short."""
    growth: Sequence[int]
    """By how many bytes each process that lived to the end has grown."""

    def to_json(self) -> dict[str, Any]:
        """One row of `summary.json`."""
        names = [name for name in self.__slots__ if name not in ("plan", "faults", "visited")]
        return {
            "seed": self.plan.seed,
            "backend": self.plan.backend,
            "seconds": self.plan.seconds,
            "servers": self.plan.servers,
            **{name: getattr(self, name) for name in names},
            "faults": dict(self.faults),
            "visited": dict(self.visited),
        }
