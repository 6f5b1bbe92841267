"""The main command: `python -m harness --contenders 1000 --rate 500`."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from asyncdlock.backend import redact
from harness import config as settings
from harness import exits
from harness.cli import flags, measuring
from harness.cli.display import make_display
from harness.cli.stream import STDOUT, open_stream
from harness.config import RunConfig
from harness.judge.repeats import between_runs
from harness.live.metrics import HarnessCollector, MetricsServer, registry_of
from harness.live.server import live_page
from harness.load.fleet import Progress
from harness.load.run import Finished, run_load
from harness.report.ci import annotations, write_junit
from harness.report.model import Repeats
from harness.report.repeats import print_repeats
from harness.report.summary_json import write_summary
from harness.report.terminal import make_console, print_summary, print_verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All flags of a run."""
    flags.add_arguments(parser)
    measuring.add_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Run the load, as often as it was asked for; the exit code says how it went.

    :raises UsageError, ServerError: the run could not begin.
    """
    config = flags.from_arguments(args)
    command = ["python", "-m", "harness", *map(redact, args.argv)]
    # Whoever reads the stream there wants nothing else.
    console = make_console(stderr=config.stream == STDOUT)
    for warning in settings.warnings(config):
        print(f"harness: warning: {warning}", file=sys.stderr)
    runs: list[Finished] = []
    with open_stream(config.stream) as stream, _interruptible() as interrupted:
        while len(runs) < config.repeat and not interrupted.is_set():
            finished = await _show(
                config, command, console, interrupted, stream.progress if stream else lambda progress: None
            )
            runs.append(finished)
            show = print_verdict if config.quiet or config.repeat > 1 else print_summary
            show(console, finished.summary, str(finished.folder))
            if stream is not None:
                stream.ended(finished)
                stream.run += 1
    if len(runs) > 1:
        repeats = _together(runs)
        if not config.quiet:
            print_repeats(console, repeats)
    gravest = min(runs, key=lambda finished: exits.GRAVEST_FIRST.index(finished.exit_code))
    _tell_ci(config, gravest)
    return gravest.exit_code


async def _show(
    config: RunConfig,
    command: list[str],
    console: Console,
    interrupted: asyncio.Event,
    tell: Callable[[Progress], None],
) -> Finished:
    """One run, and what people and programs see of it while it lasts."""
    collector = HarnessCollector()
    async with live_page(config) as live:
        if live is not None:
            print(f"harness: watch this run at {live.url}", file=sys.stderr)
        with (
            _metrics(config, collector) as metrics_url,
            contextlib.closing(make_display(config, console)) as display,
        ):
            if metrics_url is not None:
                display.status(f"metrics at {metrics_url}")

            def observe(progress: Progress) -> None:
                display.progress(progress)
                collector.progress = progress
                tell(progress)
                if live is not None:
                    live.progress(progress)

            finished = await run_load(
                config, command=command, status=display.status, observe=observe, interrupted=interrupted
            )
        if live is not None:
            live.ended(finished.summary.verdict, str(finished.folder))
    return finished


def _together(runs: list[Finished]) -> Repeats:
    """What all runs found; it stands in the summary of the last."""
    last = runs[-1]
    folders = tuple(finished.folder.name for finished in runs)
    repeats = Repeats(folders=folders, figures=between_runs([finished.summary for finished in runs]))
    write_summary(last.folder, replace(last.summary, repeats=repeats))
    return repeats


def _tell_ci(config: RunConfig, finished: Finished) -> None:
    summary = finished.summary
    if config.junit is not None:
        write_junit(Path(config.junit), summary.checks, summary.thresholds, seconds=summary.duration_s)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for annotation in annotations(summary.checks, summary.thresholds):
            print(annotation, file=sys.stderr)


@contextlib.contextmanager
def _metrics(config: RunConfig, collector: HarnessCollector) -> Iterator[str | None]:
    if config.metrics_port is None:
        yield None
        return
    with contextlib.closing(MetricsServer(config.metrics_port, registry_of(collector))) as server:
        yield server.url


@contextlib.contextmanager
def _interruptible() -> Iterator[asyncio.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one cancels the run."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None

    def on_signal() -> None:
        if interrupted.is_set():
            task.cancel()
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield interrupted
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
