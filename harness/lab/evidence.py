"""The files that tell of a finished experiment: `answer.md` for people, `summary.json` for programs."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from harness.lab.lab import Lab
from harness.lab.outcome import Case, ExperimentResult, Fact
from harness.lab.registry import Experiment
from harness.lab.scene import TIMELINE_FILE
from harness.report import environment

SCHEMA = "asyncdlock-experiment/1"
ANSWER_FILE = "answer.md"
SUMMARY_FILE = "summary.json"

EXIT_OK, EXIT_OTHERWISE, EXIT_NOTHING_RAN = 0, 1, 3


def exit_code(outcome: ExperimentResult) -> int:
    """0: as predicted; 1: not as predicted; 3: nothing could be run."""
    if not outcome.ran:
        return EXIT_NOTHING_RAN
    return EXIT_OK if outcome.as_predicted else EXIT_OTHERWISE


def repeat_command(experiment: Experiment, lab: Lab) -> str:
    """What to type for the same schedule."""
    words = ["python", "-m", "harness", "experiment", experiment.name]
    words += ["--quick"] if lab.quick else []
    words += [] if lab.runs is None else ["--runs", str(lab.runs)]
    return shlex.join([*words, "--seed", str(lab.seed)])


def write_evidence(
    experiment: Experiment, lab: Lab, outcome: ExperimentResult, *, started: str, seconds: float
) -> None:
    """:raises OSError: the folder cannot be written to."""
    (lab.folder / ANSWER_FILE).write_text(_answer(experiment, lab, outcome))
    summary = _summary(experiment, lab, outcome, started, seconds)
    (lab.folder / SUMMARY_FILE).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")


def table(cases: Sequence[Case]) -> list[list[str]]:
    """A header and a row for each case: every fact has a column, in the order of their first appearance."""
    names = list(dict.fromkeys(name for case in cases for name in case.facts))
    header = ["case", "expected", "observed", *names]
    return [header] + [
        [case.name, case.expected, case.observed, *(in_words(case.facts.get(name)) for name in names)]
        for case in cases
    ]


def in_words(fact: Fact) -> str:
    """A fact as it stands in a table."""
    match fact:
        case None:
            return ""
        case bool():
            return "yes" if fact else "no"
        case float():
            return f"{fact:.3g}" if abs(fact) < 1000 else f"{fact:,.0f}"
    return str(fact)


def _summary(
    experiment: Experiment, lab: Lab, outcome: ExperimentResult, started: str, seconds: float
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "experiment": {"number": experiment.number, "name": experiment.name},
        "question": experiment.question,
        "expectation": experiment.expectation,
        "answer": outcome.answer,
        "as_predicted": outcome.as_predicted,
        "exit_code": exit_code(outcome),
        "command": repeat_command(experiment, lab),
        "quick": lab.quick,
        "seed": lab.seed,
        "schedule": list(lab.schedule),
        "started": started,
        "duration_s": round(seconds, 3),
        "environment": environment.describe(),
        "cases": [case.to_json() for case in outcome.cases],
        "repeated": repeated(outcome.cases),
        "figures": dict(outcome.figures),
    }


def _answer(experiment: Experiment, lab: Lab, outcome: ExperimentResult) -> str:
    verdict = "as predicted" if outcome.as_predicted else "NOT as predicted"
    if not outcome.ran:
        verdict = "nothing could be run"
    parts = [
        f"# Experiment {experiment.number}: {experiment.name}",
        f"**Question.** {experiment.question}",
        f"**Expected.** {experiment.expectation}",
        f"**Answer ({verdict}).** {outcome.answer}",
        _table(outcome.cases),
        repeated(outcome.cases),
    ]
    if (lab.folder / TIMELINE_FILE).exists():
        parts.append(f"![What happened]({TIMELINE_FILE})")
    for case in outcome.cases:
        if case.shown and case.story:
            lines = "\n".join(f"{line.at:8.3f} s  {line.who:<12}  {line.text}" for line in case.story)
            parts.append(f"## {case.name}\n\n```\n{lines}\n```")
    parts.append(f"Repeat it:\n\n```\n{repeat_command(experiment, lab)}\n```")
    judged = [case.folder for case in outcome.cases if case.folder]
    if judged:
        parts.append(
            "Each case has a folder of its own beside this file, with the history, the resource's log and a "
            f"picture. The checkers judge it again with `python -m harness check {judged[0]}`."
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def repeated(cases: Sequence[Case]) -> str:
    """Which results are not those of the first attempt."""
    lines = [
        f"- {case.name}: attempt {len(case.earlier) + 1}, after {'; '.join(case.earlier)}"
        for case in cases
        if case.earlier
    ]
    return "\n".join(["Measured more than once, the last attempt counts:", *lines]) if lines else ""


def _table(cases: Sequence[Case]) -> str:
    header, *rows = table(cases)
    lines = [header, ["---"] * len(header), *rows]
    drawn = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    reasons = [f"- {case.name}: {case.reason}" for case in cases if case.reason]
    return "\n\n".join([drawn, *(["\n".join(reasons)] if reasons else [])])
