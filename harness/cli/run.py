"""The main command: `python -m harness --contenders 1000 --rate 500`."""

import argparse
import asyncio
import contextlib
import os
import shlex
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
from harness.cli.compare import comparison_table
from harness.cli.display import make_display
from harness.cli.stream import STDOUT, open_stream
from harness.config import RunConfig, UsageError
from harness.judge.comparison import compare_runs
from harness.judge.repeats import between_runs
from harness.live.metrics import HarnessCollector, MetricsServer, registry_of
from harness.live.server import live_page
from harness.load.dask_fleet import run_fleet
from harness.load.fleet import Progress
from harness.load.run import Finished, run_load
from harness.report.ci import annotations, check_writable, write_junit
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
    configs = _configurations(args)
    config = configs[0]
    if config.junit is not None:
        check_writable(Path(config.junit))
    command = ["python", "-m", "harness", *map(redact, args.argv)]
    # Whoever reads the stream there wants nothing else.
    console = make_console(stderr=config.stream == STDOUT)
    for warning in dict.fromkeys(warning for one in configs for warning in settings.warnings(one)):
        print(f"harness: warning: {warning}", file=sys.stderr)
    show = print_summary if len(configs) * config.repeat == 1 and not config.quiet else print_verdict
    sides: list[list[Finished]] = [[] for _ in configs]
    with open_stream(config.stream) as stream, _interruptible() as interrupted:
        for side in in_turns(len(configs), config.repeat):
            if interrupted.is_set():
                break
            tell = stream.progress if stream else lambda progress: None
            finished = await _show(configs[side], command, console, interrupted, tell)
            sides[side].append(finished)
            show(console, finished.summary, str(finished.folder))
            if stream is not None:
                stream.ended(finished)
                stream.run += 1
    _conclude(console, sides, quiet=config.quiet)
    runs = [finished for side in sides for finished in side]
    gravest = min(runs, key=lambda finished: exits.GRAVEST_FIRST.index(finished.exit_code))
    told = _tell_ci(config, gravest)
    return exits.UNTRUSTED if gravest.exit_code == exits.OK and not told else gravest.exit_code


def _configurations(args: argparse.Namespace) -> list[RunConfig]:
    """What is to be run; with `--versus`, its flags beside those that were typed.

    `--versus ''` runs the same beside itself: what it finds is how much the machine varies.
    """
    config = flags.from_arguments(args)
    if args.versus is None:
        return [config]
    try:
        words = shlex.split(args.versus)
    except ValueError as error:
        raise UsageError(f"--versus {args.versus!r} cannot be read: {error}") from None
    other = flags.from_arguments(args.with_more(args, words))
    if other == config and words:
        raise UsageError("--versus changes nothing: name a flag that differs, as in '--backend redis'")
    return [config, other]


def in_turns(sides: int, rounds: int) -> Iterator[int]:
    """Which side runs next: A B, B A, A B and so on, so that what drifts meanwhile favours neither."""
    for number in range(rounds):
        yield from range(sides) if number % 2 == 0 else reversed(range(sides))


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
                    steering=None if live is None else live.steering,
                )
        if live is not None:
            live.ended(finished.summary.verdict, finished.folder)
    return finished


def _conclude(console: Console, sides: list[list[Finished]], *, quiet: bool) -> None:
    """What several runs of a side found, and how two sides compare."""
    for runs in sides:
        if len(runs) > 1:
            repeats = _together(runs)
            if not quiet:
                print_repeats(console, repeats)
    if len(sides) == 2 and len(sides[0]) == len(sides[1]) and not quiet:
        before, after = ([finished.summary for finished in runs] for runs in sides)
        console.print()
        console.print(comparison_table(compare_runs(before, after)))


def _together(runs: list[Finished]) -> Repeats:
    """What all runs found; it stands in the summary of the last."""
    last = runs[-1]
    folders = tuple(finished.folder.name for finished in runs)
    repeats = Repeats(folders=folders, figures=between_runs([finished.summary for finished in runs]))
    write_summary(last.folder, replace(last.summary, repeats=repeats))
    return repeats


def _tell_ci(config: RunConfig, finished: Finished) -> bool:
    """Write what build machines read; whether that was possible."""
    summary = finished.summary
    told = True
    if config.junit is not None:
        try:
            write_junit(Path(config.junit), summary.checks, summary.thresholds, seconds=summary.duration_s)
        except OSError as error:
            told = False
            reason = error.strerror or error
            print(f"harness: --junit {config.junit!r} could not be written: {reason}", file=sys.stderr)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for annotation in annotations(summary.checks, summary.thresholds):
            print(annotation, file=sys.stderr)
    return told


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
