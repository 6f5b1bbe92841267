"""A run while it lasts: a picture in a terminal, a line a second elsewhere."""

from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.config import RunConfig
from harness.durations import format_duration
from harness.history.distribution import Distribution
from harness.load.fleet import Progress


class Display(Protocol):
    """Shows a run while it lasts."""

    def status(self, text: str) -> None:
        """What the run is busy with before and after the load."""
        ...

    def progress(self, progress: Progress) -> None: ...

    def close(self) -> None: ...


def make_display(config: RunConfig, console: Console) -> Display:
    """A picture in a terminal, a line a second elsewhere, nothing when quiet."""
    if config.quiet:
        return QuietDisplay()
    return LiveDisplay(config, console) if console.is_terminal else LineDisplay(config, console)


class QuietDisplay:
    """Shows nothing."""

    def status(self, text: str) -> None:
        pass

    def progress(self, progress: Progress) -> None:
        pass

    def close(self) -> None:
        pass


class LineDisplay:
    """One plain line a second."""

    def __init__(self, config: RunConfig, console: Console) -> None:
        self._config = config
        self._console = console
        self._printed = 0.0

    def status(self, text: str) -> None:
        self._console.print(text)

    def progress(self, progress: Progress) -> None:
        if progress.elapsed - self._printed < 0.9:
            return
        self._printed = progress.elapsed
        counters = progress.counters
        grant = _percentiles(progress, "arrival_to_grant")
        warming_up = "  warming up" if progress.elapsed < self._config.warmup else ""
        self._console.print(
            f"{progress.elapsed:6.1f} s{warming_up}  offered {progress.offered_per_s:,.0f}/s  "
            f"acquired {progress.acquired_per_s:,.0f}/s  queue {progress.waiting:,}+{counters.backlog:,}  "
            f"p50 {grant[0]}  p99 {grant[1]}  stale {counters.stale:,}  "
            f"timed out {counters.timed_out:,}  failed {counters.failed:,}  "
            f"lag p99 {_percentiles(progress, 'schedule_lag')[1]}  "
            f"left {format_duration(max(0.0, self._config.span - progress.elapsed))}"
        )

    def close(self) -> None:
        pass


class LiveDisplay:
    """A picture that is drawn over and over; it disappears when the summary comes."""

    def __init__(self, config: RunConfig, console: Console) -> None:
        self._config = config
        self._status = ""
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def status(self, text: str) -> None:
        self._status = text
        self._live.update(Text(text, style="dim"), refresh=True)

    def progress(self, progress: Progress) -> None:
        self._live.update(self.picture(progress), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def picture(self, progress: Progress) -> RenderableType:
        config, counters = self._config, progress.counters
        grant = _percentiles(progress, "arrival_to_grant")
        lag = _percentiles(progress, "schedule_lag")
        table = Table.grid(padding=(0, 3))
        for _ in range(2):
            table.add_column(style="dim", justify="right", no_wrap=True)
            table.add_column(min_width=16, no_wrap=True)
        table.add_row("offered", f"{progress.offered_per_s:,.0f} /s", "arrival → grant p50", grant[0])
        table.add_row("acquired", f"{progress.acquired_per_s:,.0f} /s", "arrival → grant p99", grant[1])
        table.add_row("waiting", f"{progress.waiting:,}", "schedule lag p99", lag[1])
        table.add_row(
            "backlog",
            f"{counters.backlog:,} (at most {counters.backlog_max:,})",
            "stale refused",
            Text(f"{counters.stale:,}", style="bold yellow" if counters.stale else ""),
        )
        table.add_row("timed out", f"{counters.timed_out:,}", "failed", f"{counters.failed:,}")
        left = max(0.0, config.span - progress.elapsed)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=config.span, completed=min(progress.elapsed, config.span), width=40),
            f"{format_duration(left)} left" if left else "finishing what has arrived",
        )
        head = Text(
            f"{config.label}, {config.contenders:,} contenders, {config.rate:g} arrivals/s", style="bold"
        )
        return Padding(Group(head, Text(), table, Text(), bar), (1, 2))


def _percentiles(progress: Progress, name: str) -> tuple[str, str]:
    p50, p99 = progress.recent.get(name, Distribution()).percentiles(50, 99)
    return format_duration(p50 / 1e9), format_duration(p99 / 1e9)
