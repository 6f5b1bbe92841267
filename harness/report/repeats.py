"""The figures of repeated runs, for reading in a terminal."""

from rich.console import Console
from rich.table import Table

from harness.judge.thresholds import Threshold
from harness.report.model import Repeats, Spread


def print_repeats(console: Console, repeats: Repeats) -> None:
    """Mean, 95 % interval of the mean, and range of every figure."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column(f"of {len(repeats.folders)} runs", no_wrap=True)
    for name in ("mean", "95 % interval", "least", "most"):
        table.add_column(name, justify="right", no_wrap=True)
    for metric, spread in repeats.figures.items():
        table.add_row(metric, *_cells(metric, spread))
    console.print()
    console.print(table)


def _cells(metric: str, spread: Spread) -> list[str]:
    shown = Threshold(metric, "<", "", 0.0).shown
    interval = (
        "needs three runs"
        if spread.interval is None
        else f"{shown(max(spread.interval[0], 0.0))} to {shown(spread.interval[1])}"
    )
    return [shown(spread.mean), interval, shown(spread.least), shown(spread.most)]
