"""What an experiment found out: its cases, each a prediction compared with what happened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

SKIPPED = "skipped"
"""Observed of a case whose server is not installed."""
NOT_SHOWN = "not shown"
"""Observed of a case whose schedule did not come about: it says nothing either way."""
FAILED = "failed"
"""Observed of a case that broke down."""
OTHERWISE = "otherwise"
"""Observed of a prediction in words or figures that did not come true."""

NOTHING_RAN = "Nothing could be run."
"""The answer where every case was skipped."""

Fact = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One thing that happened in a case, for a reader."""

    at: float
    """Seconds since the case began."""
    who: str
    text: str
    tone: Literal["plain", "good", "bad", "fault"] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One arm of an experiment.

    `expected` and `observed` are short words that can be compared: the checkers' verdicts (`ok`,
    `violated`) where safety is in question, whatever fits elsewhere.
    """

    name: str
    expected: str
    observed: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """Figures and words for the table: one column for each name."""
    findings: Sequence[str] = ()
    """What the checkers said, a sentence each."""
    reason: str = ""
    """Why it was skipped, not shown or failed."""
    story: Sequence[StoryLine] = ()
    """What happened, in order."""
    shown: bool = False
    """Whether the story is worth printing among those of the other cases."""
    folder: str | None = None
    """Where its files are, inside the experiment's folder."""
    earlier: Sequence[str] = ()
    """What was observed of earlier attempts, which did not count: a busy machine is no result."""

    @property
    def skipped(self) -> bool:
        return self.observed == SKIPPED

    @property
    def as_predicted(self) -> bool:
        return self.observed == self.expected

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "expected": self.expected,
            "observed": self.observed,
            "as_predicted": self.as_predicted,
            "facts": dict(self.facts),
            "findings": list(self.findings),
            "reason": self.reason,
            "folder": self.folder,
            "earlier": list(self.earlier),
        }


def compare(name: str, holds: bool, *, prediction: str, **facts: Fact) -> Case:
    """A case that is no question of safety: a prediction in words, and whether it came true."""
    return Case(name=name, expected=prediction, observed=prediction if holds else OTHERWISE, facts=facts)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A paragraph of an answer, and the cases that it rests on."""

    text: str
    rests_on: Sequence[Case]

    @property
    def holds(self) -> bool:
        """At least one of its cases ran, and each that did came out as predicted."""
        ran = [case for case in self.rests_on if not case.skipped]
        return bool(ran) and all(case.as_predicted for case in ran)


def answer(*paragraphs: str | Conclusion) -> str:
    """An answer that says no more than was observed.

    A claim is made only if it holds. What came out otherwise is said first, case by case; plain paragraphs
    are taken to be made of what was counted.
    """
    claims = [one for one in paragraphs if isinstance(one, Conclusion)]
    otherwise = {
        case.name: f"- {case.name}: expected {case.expected}, observed {case.observed}"
        for claim in claims
        for case in claim.rests_on
        if not case.skipped and not case.as_predicted
    }
    said = ["Not all of it came out as predicted:\n" + "\n".join(otherwise.values())] if otherwise else []
    for one in paragraphs:
        if isinstance(one, str):
            said.append(one)
        elif one.holds:
            said.append(one.text)
    return "\n\n".join(part for part in said if part) or NOTHING_RAN


def about(cases: Sequence[Case], *words: str) -> list[Case]:
    """Those that have one of these in their names."""
    return [case for case in cases if any(word in case.name for word in words)]


def count(cases: Sequence[Case], observed: str) -> str:
    """How many of those that ran were observed to be so: `3 of 4`."""
    ran = [case for case in cases if not case.skipped]
    return f"{sum(case.observed == observed for case in ran)} of {len(ran)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    cases: Sequence[Case]
    answer: str
    """The answer to the question, in one to three paragraphs of Markdown."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Further numbers for `summary.json`."""

    @property
    def ran(self) -> list[Case]:
        return [case for case in self.cases if not case.skipped]

    @property
    def as_predicted(self) -> bool:
        """At least one case ran, and each that did came out as predicted."""
        return bool(self.ran) and all(case.as_predicted for case in self.ran)
