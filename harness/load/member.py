"""One process of a run's fleet: takes orders on standard input, reports on standard output.

The generator has a process to itself, also when there is only one: drawing a display, serving
metrics or packing a report in the same event loop would make arrivals late. `messages.py` says what it hears
and says.
"""

import asyncio
import contextlib
import json
import pkgutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import LockError
from asyncdlock._inside import backend_of
from harness.faults.plan import FaultSpec
from harness.history import HistoryWriter, Row
from harness.history.recorder import Recorder
from harness.history.rows import BODY
from harness.live import exposition
from harness.live.watch import LockWatch, shown_keys
from harness.load import messages, pacer
from harness.load.background import background
from harness.load.clock import now
from harness.load.contender import Contenders
from harness.load.freezes import Freezes
from harness.load.keyspace import key_chooser
from harness.load.kinds import Kind
from harness.load.messages import MemberProgress, MemberReport, Orders, say
from harness.load.pauses import Pauses, spare_the_collector
from harness.load.runner import Runner
from harness.load.sections import Sections
from harness.resource.client import ResourceClient

REPORT_EVERY = 0.5
STOP_WITHIN = 1.0
"""What an interrupted run leaves to holders for finishing."""
_SHOWN = ("arrival_to_grant", "schedule_lag")
"""What a display needs; each costs the event loop most of a millisecond."""
_WARM_UP_KEY = "harness-warm-up"


class Member:
    """One process's share of a run, from its orders to its files."""

    def __init__(self, orders: Orders, client: asyncdlock.LockClient, writer: ResourceClient) -> None:
        self.config = orders.config
        self.process = orders.process
        self.folder = orders.folder
        self.client = client
        self.writer = writer
        freezes = [FaultSpec.parse(text) for text in orders.freezes]
        self._freezes = Freezes(freezes, self.process, self.config.all_processes)
        self._runner: Runner | None = None
        due = pacer.staged(self.config.schedule, arrivals=self.config.arrivals, seed=self.config.seed)
        self._course = pacer.share(due, self.process, self.config.all_processes)

    def follow(self, order: Mapping[str, Any]) -> None:
        """Do what somebody wants who steers the run."""
        if "freeze" in order:
            self._freezes.add(FaultSpec.parse(order["freeze"]))
            return
        config, at = self.config, order["at"]
        # Numbered like a stage, so that the run can be repeated by `--stages`.
        seed = config.seed + order["stage"] - 1
        stages = [(0.0, at), (order["rate"], config.span - at)]
        due = pacer.staged(stages, arrivals=config.arrivals, seed=seed)
        void = self._course.exchange(round(at * pacer.NANOSECONDS), due)
        if self._runner is not None:
            self._runner.look_again(void=void)

    async def warm_up(self) -> None:
        """Open the connection, load the scripts, learn whether the server and the TTL will do.

        :raises LockError, ValueError, OSError: they will not.
        """
        handle = await self.client.acquire(
            f"{_WARM_UP_KEY}-{self.process}", ttl=self.config.ttl, timeout=10.0
        )
        await handle.release()

    async def run(self, start: int, stopped: asyncio.Event) -> MemberReport:
        """Offer the load from `start` on; return the final report once the files are written."""
        config = self.config
        history = HistoryWriter(
            messages.history_part(self.folder, self.process),
            Row,
            origin_ns=start,
            config=config.to_json() | {"body": BODY},
            process=self.process,
        )
        recorder = Recorder(history, origin_ns=start, warm_up_ns=round(config.warmup * pacer.NANOSECONDS))
        sections = Sections(self.writer.connections)
        contenders = self._contenders(recorder, start, sections, self._freezes)
        if config.live is not None:
            contenders.watch = LockWatch(shown_keys(config.keys))
            recorder.see = contenders.watch.see
        runner = Runner(
            contenders.serve,
            contenders.give_up,
            contenders=_share(config.contenders, self.process, config.all_processes),
            patience=None if config.timeout is None else round(config.timeout * pacer.NANOSECONDS),
            observe_lag=recorder.lag,
            room=sections.room,
        )
        contenders.arrivals = runner
        recorder.between = runner.keep_up
        self._runner = runner
        until = round(config.span * pacer.NANOSECONDS) if config.steer else None
        spare_the_collector()
        # Not since the start, which a run that is interrupted may not live to see.
        cpu, began = time.process_time(), time.perf_counter()
        commands = self._commands()
        pauses = Pauses()
        async with background(
            recorder.keep_up(), self._report(recorder, runner, contenders, start), pauses.watch()
        ):
            stopper = asyncio.create_task(_stop(stopped, runner))
            try:
                await runner.run(self._course, start=start, until=until)
                await self._finish(runner, stopped)
            finally:
                stopper.cancel()
        _count(recorder, runner)
        ended = now() - start
        cpu = (time.process_time() - cpu) / (time.perf_counter() - began)
        recording = recorder.close()
        messages.recording_part(self.folder, self.process).write_text(json.dumps(recording.to_json()))
        return MemberReport(
            cpu=cpu,
            seconds=ended / pacer.NANOSECONDS,
            dropped=runner.dropped,
            faults=self._freezes.faults,
            pauses=pauses.counted(),
            max_loop_lag=self.client.max_loop_lag,
            commands=None if commands is None else (self._commands() or 0) - commands,
        )

    def _commands(self) -> int | None:
        """What the backend has sent so far; `None` when it does not count."""
        count: int | None = getattr(backend_of(self.client), "commands", None)
        return count

    def _contenders(self, recorder: Recorder, start: int, sections: Sections, freezes: Freezes) -> Contenders:
        config = self.config
        distribution, _, exponent = config.key_distribution.partition(":")
        return Contenders(
            self.client,
            self.writer,
            recorder.record,
            start=start,
            key_of=key_chooser(
                config.keys, distribution=distribution, exponent=float(exponent or 1.1), seed=config.seed
            ),
            ttl=config.ttl,
            timeout=config.timeout,
            work=config.work,
            pause=config.pause,
            pause_period=config.pause_period,
            process=self.process,
            sections=sections,
            kind=Kind.parse(config.kind),
            freezes=freezes,
            observe_connection=recorder.connection,
        )

    async def _finish(self, runner: Runner, stopped: asyncio.Event) -> None:
        """Let what was admitted end by itself; then end it."""
        drain = asyncio.create_task(runner.drain(self.config.drain_limit))
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait((drain, stop), return_when=asyncio.FIRST_COMPLETED)
        if not drain.done():
            await asyncio.wait((drain,), timeout=STOP_WITHIN)
        for task in (drain, stop):
            task.cancel()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await drain
        await runner.abandon()

    async def _report(self, recorder: Recorder, runner: Runner, contenders: Contenders, start: int) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            _count(recorder, runner)
            snapshot = recorder.snapshot(now() - start, _SHOWN)
            recent = {}
            for name, part in snapshot.recent.items():
                await asyncio.sleep(0)  # half a millisecond each: let arrivals through in between
                recent[name] = part.to_text()
            progress = MemberProgress(
                at=snapshot.at,
                counters=snapshot.counters,
                offered_per_s=snapshot.offered_per_s,
                acquired_per_s=snapshot.acquired_per_s,
                busy=runner.busy,
                waiting=contenders.waiting,
                recent=recent,
                metrics=None if self.config.metrics_port is None else exposition.export(),
                lock=None if contenders.watch is None else contenders.watch.report(),
            )
            say(progress=progress.to_json())


def _share(contenders: int, process: int, processes: int) -> int:
    return contenders // processes + (process < contenders % processes)


def _count(recorder: Recorder, runner: Runner) -> None:
    counters = recorder.counters
    counters.offered = runner.offered
    counters.dispatched = runner.dispatched
    counters.backlog = runner.backlog
    counters.backlog_max = runner.backlog_max


async def _stop(stopped: asyncio.Event, runner: Runner) -> None:
    await stopped.wait()
    runner.stop()


def _client(orders: Orders) -> asyncdlock.LockClient:
    """:raises ValueError, ImportError: none can be made."""
    made_by = orders.config.client
    if made_by is None:
        return asyncdlock.connect(orders.url)
    # The caller's own module: where the caller finds it, we do.
    sys.path.extend(entry for entry in orders.path if entry not in sys.path)
    client: asyncdlock.LockClient = pkgutil.resolve_name(made_by)()
    return client


async def main() -> None:
    """Follow the orders until the run is done. Nobody left to give orders means: stop."""
    reader = await messages.heard()
    orders = Orders.from_json(json.loads(await reader.readline()))
    try:
        client = _client(orders)
    except (ValueError, ImportError) as error:
        say(error=str(error))
        return
    async with client, ResourceClient(orders.resource_url) as writer:
        member = Member(orders, client, writer)
        refusal = Kind.parse(member.config.kind).refusal(client)
        if refusal:
            say(error=f"--kind {member.config.kind}: {refusal}")
            return
        try:
            await member.warm_up()
        except (LockError, ValueError, OSError) as error:
            say(error=str(error) or type(error).__name__)
            return
        say(ready=asdict(client.capabilities))
        start = json.loads(await reader.readline() or "{}").get("start")
        if start is None:
            return
        stopped = asyncio.Event()
        orphaned = False

        async def listen() -> None:
            nonlocal orphaned
            while line := await reader.readline():
                order = json.loads(line)
                if "stop" in order:
                    break
                member.follow(order)
            orphaned = not line
            stopped.set()

        async with background(listen()):
            try:
                report = await member.run(start, stopped)
            except OSError as error:
                say(error=f"cannot write the history: {error.strerror or error}")
                return
        if orphaned:
            return
        try:
            await member.warm_up()
        except (LockError, OSError) as error:
            report = replace(report, died=str(error))
        # Before the client is closed: clean-up at a server that has died takes its time.
        say(done=report.to_json())


if __name__ == "__main__":
    uvloop.run(main())
