"""One run from beginning to end: servers, resource, fleet, verdict, files.

`run_load` is what the command line and the experiments share. Whatever happens to the load, what was
recorded until then is judged and written.
"""

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asyncdlock.backend import redact
from harness.config import RunConfig, UsageError
from harness.durations import format_duration
from harness.faults.plan import faults_of
from harness.history import HISTORY_FILE, RESOURCE_FILE, Fault, HistoryWriter, Row, load_run, merge
from harness.history.hlog import HLOG_FILE, write_hlog
from harness.judge import checkers
from harness.load.abort import AbortRules
from harness.load.clock import now
from harness.load.disturbance import Disturbance, disturbed
from harness.load.fleet import Fleet, Progress
from harness.load.pacer import NANOSECONDS
from harness.load.result import FleetResult
from harness.load.share import Share, not_judged, write_share
from harness.load.steering import Steering
from harness.load.targets import LockServer, Resource, check_urls, fenced_resource, lock_server
from harness.report import environment, summary
from harness.report.html import write_html
from harness.report.model import Judgement, Summary
from harness.report.summary_json import write_summary

_COLLECT_WITHIN = 15.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over, and where its files are."""

    folder: Path
    summary: Summary

    @property
    def exit_code(self) -> int:
        return self.summary.exit_code


async def run_load(
    config: RunConfig,
    *,
    command: Sequence[str] = (),
    status: Callable[[str], None] = lambda text: None,
    observe: Callable[[Progress], None] = lambda progress: None,
    interrupted: asyncio.Event | None = None,
    agree: Callable[[], Awaitable[float]] | None = None,
    steering: Steering | None = None,
) -> Finished:
    """Run the load that `config` describes and write its folder.

    `agree` is asked, once everything is ready, when the first arrival is due, in seconds since the epoch: for
    generators that start together. `steering` may change the run while it is under way.

    Setting `interrupted` ends the load early; the files are written all the same. A cancellation
    stops every process that was started and leaves what the load recorded, unmerged and unjudged.

    :raises UsageError, ServerError: the run could not begin; nothing is left of it.
    """
    interrupted = interrupted or asyncio.Event()
    await check_urls(config)
    plan = faults_of(config)
    killed = config.steer or any(fault.kind == "kill" and fault.target == "server" for fault in plan)
    folder = make_folder(Path(config.out), config.label)
    started = datetime.now(UTC)
    where = environment.describe()
    begun = False
    try:
        async with contextlib.AsyncExitStack() as stack:
            status(f"starting {'the resource' if config.url else f'{config.label} and the resource'}")
            fleet, server, resource = await _together(
                stack.enter_async_context(Fleet(config, folder)),
                stack.enter_async_context(lock_server(config, durable=killed)),
                stack.enter_async_context(fenced_resource(config)),
            )
            where["lock_server"] = redact(await server.product())
            disturbance = await stack.enter_async_context(disturbed(config, plan, server, resource))
            freezes = [str(fault) for fault in plan if fault.target == "holder"]
            await fleet.connect(disturbance.url, disturbance.resource_url, freezes)
            status(f"{config.contenders:,} contenders, {config.rate:g} arrivals/s, {config.span:g} s")
            begun = True
            rules = AbortRules(config.abort_on, warmup=config.warmup)
            start_at = await agree() if agree is not None else config.start_at

            def look(progress: Progress) -> None:
                progress.faults = disturbance.faults
                observe(progress)
                if rules.look(progress):
                    fleet.stop()

            def under_way(start: int) -> None:
                disturbance.begin(start)
                if steering is not None:
                    steering.begin(config, fleet, disturbance, start, interrupted.set)

            result = await _load(fleet, disturbance, under_way, look, interrupted, start_at)
            status("collecting what the resource decided")
            failures, reported = await _collect(resource, result, folder)
            failures += disturbance.unexpected(server, result.silence)
        if steering is not None:
            steering.over()
            config = steering.carried_out(config)
            command = steering.repeating(command, config)
    except BaseException:
        if not begun:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    status("checking the history")
    document = await asyncio.to_thread(
        _judge,
        folder,
        config,
        result,
        command=list(command),
        started=started,
        environment=where,
        faults=[*result.faults, *disturbance.faults],
        failures=failures,
        reported=reported,
        interrupted=interrupted.is_set(),
        crossed=rules.crossed,
    )
    return Finished(folder, document)


async def _together(
    fleet: Awaitable[Fleet], server: Awaitable[LockServer], resource: Awaitable[Resource]
) -> tuple[Fleet, LockServer, Resource]:
    """Wait for all three at once; when one fails, the others are ended before it is told."""
    tasks = asyncio.ensure_future(fleet), asyncio.ensure_future(server), asyncio.ensure_future(resource)
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _load(
    fleet: Fleet,
    disturbance: Disturbance,
    under_way: Callable[[int], None],
    observe: Callable[[Progress], None],
    interrupted: asyncio.Event,
    start_at: float | None,
) -> FleetResult:
    wait = None if start_at is None else start_at - time.time()
    start = fleet.start(None if wait is None else now() + round(wait * NANOSECONDS))
    under_way(start)

    async def stop_when_interrupted() -> None:
        await interrupted.wait()
        fleet.stop()

    stopper = asyncio.create_task(stop_when_interrupted())
    try:
        result = await fleet.finish(start, observe)
        if wait is not None and wait < 0:
            result.failures.append(f"it was ready {format_duration(-wait)} after the agreed start")
        return result
    finally:
        stopper.cancel()
        await disturbance.end()


async def _collect(resource: Resource, result: FleetResult, folder: Path) -> tuple[list[str], int | None]:
    """Save the resource's log while it is there; what has died meanwhile, a sentence each."""
    failures = []
    reported = None
    deadline = time.monotonic() + _COLLECT_WITHIN
    while True:
        try:
            await resource.save_log(folder / RESOURCE_FILE, result.start)
            reported = await resource.stale_rejections()
            break
        except (OSError, ValueError) as error:
            # It may be starting again: what it has decided is durable, and worth waiting for.
            if resource.died or time.monotonic() > deadline:
                (folder / RESOURCE_FILE).unlink(missing_ok=True)
                reason = str(error) or type(error).__name__
                failures.append(f"the resource did not answer any more at the end: {reason}")
                break
        await asyncio.sleep(0.1)
    return failures, reported


def _judge(
    folder: Path,
    config: RunConfig,
    result: FleetResult,
    *,
    command: list[str],
    started: datetime,
    environment: dict[str, Any],
    faults: list[Fault],
    failures: list[str],
    reported: int | None,
    interrupted: bool,
    crossed: Judgement | None,
) -> Summary:
    """Everything after the load: it needs no event loop, and would only hold it up."""
    if result.histories:
        try:
            merge(result.histories, folder / HISTORY_FILE, sorted(faults, key=lambda fault: fault.at))
        except OSError:  # the disk is full: the parts are all that there is
            (folder / HISTORY_FILE).unlink(missing_ok=True)
            raise
    else:  # no generator lived long enough to write a line
        HistoryWriter(folder / HISTORY_FILE, Row, origin_ns=result.start, config=config.to_json()).close()
    for part in result.histories:
        part.unlink()
    write_hlog(folder / HLOG_FILE, result.recording, started=started)
    history = load_run(folder)
    document = summary.build(
        config,
        command=command or [Path(sys.executable).name, "-m", "harness"],
        started=started.isoformat(timespec="seconds"),
        environment=environment,
        fleet=result,
        history=history,
        checks=not_judged(config) if config.is_share else checkers.run_checks(history),
        stale_rejections_reported=reported,
        failures=failures,
        interrupted=interrupted,
        crossed=crossed,
    )
    write_summary(folder, document)
    write_html(folder)
    if config.is_share:
        write_share(Share(folder, config, started, environment, result, failures, reported))
    return document


def make_folder(out: Path, label: str) -> Path:
    """A new folder `<UTC time>-<label>` under `out`.

    :raises UsageError: it cannot be made.
    """
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            folder = out / (f"{stamp}-{label}" if number == 1 else f"{stamp}-{label}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise UsageError(
            f"cannot write to the folder {str(out)!r}: {error.strerror or error}; choose another with --out"
        ) from None
    raise UsageError(f"too many runs in one second in {str(out)!r}")
