"""The main command: `python -m harness --contenders 1000 --rate 500`."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from asyncdlock.backend import redact
from harness import config as settings
from harness.cli.display import make_display
from harness.cli.flags import add_arguments, from_arguments
from harness.config import RunConfig
from harness.live.metrics import HarnessCollector, MetricsServer, registry_of
from harness.live.server import live_page
from harness.load.dask_fleet import run_fleet
from harness.load.fleet import Progress
from harness.load.run import run_load
from harness.report.ci import annotations, write_junit
from harness.report.terminal import make_console, print_summary, print_verdict

__all__ = ["add_arguments", "run"]


async def run(args: argparse.Namespace) -> int:
    """Run the load, show it, print the summary; the exit code says how it went.

    :raises UsageError, ServerError: the run could not begin.
    """
    config = from_arguments(args)
    console = make_console()
    for warning in settings.warnings(config):
        print(f"harness: warning: {warning}", file=sys.stderr)
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
                if live is not None:
                    live.progress(progress)

            command = ["python", "-m", "harness", *map(redact, args.argv)]
            with _interruptible() as interrupted:
                if config.fleet is not None:
                    finished = await run_fleet(
                        config, command=command, status=display.status, interrupted=interrupted
                    )
                else:
                    finished = await run_load(
                        config,
                        command=command,
                        status=display.status,
                        observe=observe,
                        interrupted=interrupted,
                    )
        if live is not None:
            live.ended(finished.summary.verdict, str(finished.folder))
    summary = finished.summary
    show = print_verdict if config.quiet else print_summary
    show(console, summary, str(finished.folder))
    if config.junit is not None:
        write_junit(Path(config.junit), summary.checks, summary.thresholds, seconds=summary.duration_s)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for annotation in annotations(summary.checks, summary.thresholds):
            print(annotation, file=sys.stderr)
    return finished.exit_code


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
