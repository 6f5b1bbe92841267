"""What an experiment prints: the question, what happened line by line, a table, and the answer."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from harness.lab.evidence import exit_code, table
from harness.lab.outcome import Case, ExperimentResult
from harness.lab.registry import Experiment

_TONES = {"plain": "", "good": "green", "bad": "bold red", "fault": "yellow"}


def print_list(console: Console, experiments: Iterable[Experiment]) -> None:
    """Number, name and question of each."""
    for one in experiments:
        console.print(Text.assemble((f"{one.number:>3}  {one.name:<18}", "bold"), one.question))


def print_opening(console: Console, experiment: Experiment) -> None:
    console.print()
    console.print(Text(f"Experiment {experiment.number} · {experiment.name}", style="bold"))
    console.print(Text.assemble(("question  ", "dim"), experiment.question))
    console.print(Text.assemble(("expected  ", "dim"), experiment.expectation))
    console.print()


def print_outcome(console: Console, outcome: ExperimentResult, *, folder: Path, command: str) -> None:
    """Everything that a reader needs to be convinced, and where to find the rest."""
    for case in outcome.cases:
        if case.shown and case.story:
            _print_story(console, case)
    _print_table(console, outcome.cases)
    for case in outcome.cases:
        if case.reason:
            console.print(Text(f"{case.name}: {case.reason}", style="yellow"))
    console.print()
    # Markdown is for terminals; plain output keeps the text as it was written.
    console.print(Markdown(outcome.answer) if console.is_terminal else Text(outcome.answer))
    console.print()
    console.print(_verdict(outcome))
    console.print(Text.assemble(("evidence  ", "dim"), str(folder)))
    console.print(Text.assemble(("repeat    ", "dim"), command))


def print_all(console: Console, results: Iterable[tuple[Experiment, ExperimentResult, Path]]) -> None:
    """One line for each experiment of several."""
    console.print()
    for experiment, outcome, folder in results:
        line = Text(f"{experiment.number:>3}  {experiment.name:<18} ")
        line.append_text(_verdict(outcome))
        line.append(f"  {folder}", style="dim")
        console.print(line)


def _print_story(console: Console, case: Case) -> None:
    console.print(Text(case.name, style="bold underline"))
    width = max(len(line.who) for line in case.story)
    for line in case.story:
        console.print(
            Text.assemble(
                (f"{line.at:9.3f} s  ", "dim"), f"{line.who:<{width}}  ", (line.text, _TONES[line.tone])
            )
        )
    console.print()


def _print_table(console: Console, cases: Sequence[Case]) -> None:
    header, *rows = table(cases)
    if not console.is_terminal:
        # As wide as it is: whoever reads a file can scroll, and nothing may be cut off.
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            console.print(line.rstrip(), markup=False)
        return
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in header:
        drawn.add_column(name, overflow="fold")
    for case, row in zip(cases, rows, strict=True):
        colour = "dim" if case.skipped else "green" if case.as_predicted else "bold red"
        drawn.add_row(*(Text(cell, style=colour if place == 2 else "") for place, cell in enumerate(row)))
    console.print(drawn)


def _verdict(outcome: ExperimentResult) -> Text:
    ran, skipped = outcome.ran, len(outcome.cases) - len(outcome.ran)
    tail = f", {skipped} skipped" if skipped else ""
    if exit_code(outcome) == 0:
        return Text(f"as predicted: {len(ran)} of {len(ran)} cases{tail}", style="bold green")
    if not ran:
        return Text(f"nothing could be run{tail}", style="bold yellow")
    good = sum(case.as_predicted for case in ran)
    return Text(
        f"NOT as predicted: {len(ran) - good} of {len(ran)} cases came out otherwise{tail}", style="bold red"
    )
