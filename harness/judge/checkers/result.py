"""What a checker says: a verdict, and findings that a person can read."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.judge.checkers.words import in_words

Verdict = Literal["ok", "violated", "unknown"]

# A violation is a fact; what could not be judged cannot excuse it.
_BADNESS: Mapping[Verdict, int] = {"ok": 0, "unknown": 1, "violated": 2}

_LISTED = 20


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """`violated` before `unknown` before `ok`; nothing at all is `unknown`."""
    return max(verdicts, key=lambda verdict: _BADNESS[verdict], default="unknown")


@dataclass(slots=True, frozen=True)
class CheckResult:
    verdict: Verdict
    findings: list[str] = field(default_factory=list)
    """A sentence each, twenty at most and then "and N more"; empty when all is well."""
    figures: Mapping[str, int | float] = field(default_factory=dict)
    """What was looked at: a verdict on nothing should look like one."""
    unseen: list[str] = field(default_factory=list)
    """What the checker could not look at, a phrase each; it does not change the verdict."""

    def to_json(self) -> dict[str, Any]:
        """As in the `checks` of `summary.json`."""
        return {
            "verdict": self.verdict,
            "findings": self.findings,
            "figures": dict(self.figures),
            "unseen": self.unseen,
        }


class Unsound(Exception):
    """The history breaks an assumption of the checker, which therefore cannot judge."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__(findings[0])
        self.findings = findings


class Findings:
    """Collects findings. They are worded only for as long as they will be listed: there may be a million.

    A finding is a `str.format` template and what goes in, where rows and decisions describe themselves.
    `arrivals` tells which arrival is behind an owner, and is asked when the first finding is worded.
    """

    def __init__(self, arrivals: Callable[[], Mapping[str, int]] = dict) -> None:
        self._arrivals = arrivals
        self._listed: dict[Verdict, list[str]] = {"violated": [], "unknown": []}
        self._count: dict[Verdict, int] = {"violated": 0, "unknown": 0}
        self._unseen: list[str] = []

    def unseen(self, phrase: str, *subjects: object) -> None:
        """Something that the checker had no way to look at."""
        self._unseen.append(phrase.format(*subjects))

    def violated(self, sentence: str, *subjects: object) -> None:
        """Something that must not happen did."""
        self._add("violated", sentence, subjects)

    def unknown(self, sentence: str, *subjects: object) -> None:
        """Something cannot be judged."""
        self._add("unknown", sentence, subjects)

    @property
    def anything(self) -> bool:
        return any(self._count.values())

    def _add(self, verdict: Verdict, sentence: str, subjects: tuple[object, ...]) -> None:
        self._count[verdict] += 1
        if self._count[verdict] <= _LISTED:
            arrivals = self._arrivals()
            self._listed[verdict].append(sentence.format(*(in_words(it, arrivals) for it in subjects)))

    def listed(self) -> list[str]:
        """The worst first."""
        sentences = (self._listed["violated"] + self._listed["unknown"])[:_LISTED]
        more = sum(self._count.values()) - len(sentences)
        return [*sentences, f"and {more:,} more"] if more else sentences

    def result(self, **figures: int | float) -> CheckResult:
        """The verdict that follows."""
        verdict = worst(["ok", *(verdict for verdict, count in self._count.items() if count)])
        return CheckResult(verdict, self.listed(), figures, self._unseen)

    def demand(self) -> None:
        """:raises Unsound: when anything was found."""
        if sentences := self.listed():
            raise Unsound(sentences)
