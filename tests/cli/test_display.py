"""The display: what a person sees of a run while it lasts."""

import io

import pytest
from rich.console import Console

from harness.cli.display import LineDisplay, LiveDisplay, QuietDisplay, make_display
from harness.config import RunConfig
from harness.history.distribution import Distribution
from harness.history.recorder import Counters
from harness.load.fleet import Progress


def progress(elapsed: float) -> Progress:
    return Progress(
        elapsed=elapsed,
        counters=Counters(
            offered=900, acquired=800, backlog=41, backlog_max=77, stale=6, timed_out=5, failed=4
        ),
        offered_per_s=503.2,
        acquired_per_s=498.7,
        busy=10,
        waiting=9,
        recent={
            "arrival_to_grant": Distribution([2_000_000] * 99 + [250_000_000] * 2),
            "schedule_lag": Distribution([70_000]),
        },
    )


WANTED = ("503", "499", "9", "41", "2 ms", "250 ms", "6", "5", "4", "70 µs")


def test_a_terminal_shows_rates_queue_percentiles_rejections_lag_and_time_left() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=110, record=True)
    display = LiveDisplay(RunConfig(duration=15), console)
    display.status("starting")
    display.close()
    console.print(display.picture(progress(5.0)))
    text = console.export_text()
    for figure in (*WANTED, "at most 77", "10 s left", "1,000 contenders, 500 arrivals/s"):
        assert figure in text
    console.print(display.picture(progress(16.0)))
    assert "finishing what has arrived" in console.export_text()


def test_elsewhere_it_is_a_line_a_second() -> None:
    output = io.StringIO()
    display = LineDisplay(RunConfig(duration=15), Console(file=output, width=300))
    for tenths in range(5, 40, 5):
        display.progress(progress(tenths / 10))
    lines = output.getvalue().splitlines()
    assert len(lines) == 3
    for figure in (*WANTED, "left 14 s"):
        assert figure in lines[0]


@pytest.mark.parametrize(
    ("quiet", "terminal", "kind"),
    [(True, True, QuietDisplay), (False, True, LiveDisplay), (False, False, LineDisplay)],
)
def test_the_display_fits_the_place(quiet: bool, terminal: bool, kind: type) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal)
    display = make_display(RunConfig(quiet=quiet), console)
    display.close()
    assert type(display) is kind
