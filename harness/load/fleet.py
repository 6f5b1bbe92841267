"""The same run over one or several processes: start members, give a common start, merge what they found."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.config import RunConfig, UsageError
from harness.faults.plan import FaultSpec
from harness.history import Fault
from harness.history.distribution import Distribution
from harness.history.recorder import Counters, Recording
from harness.live import watch
from harness.live.exposition import Exported
from harness.load.clock import now
from harness.load.messages import MemberProgress, MemberReport, Orders, history_part, recording_part
from harness.load.pacer import NANOSECONDS
from harness.load.result import FleetResult, all_together

_HEAD_START = 0.1
"""Seconds between the order to start and the start: every member must have read it by then."""
_MAX_LINE = 1 << 24


@dataclass(slots=True)
class Progress:
    """A run in flight, all processes together: what displays and metrics show."""

    elapsed: float = 0.0
    """Seconds since the first arrival was due; negative before."""
    counters: Counters = field(default_factory=Counters)
    offered_per_s: float = 0.0
    acquired_per_s: float = 0.0
    busy: int = 0
    """Contenders that serve an arrival."""
    waiting: int = 0
    """Those of them that wait for a grant."""
    recent: dict[str, Distribution] = field(default_factory=dict)
    """Each latency over the last few seconds."""
    metrics: Sequence[Exported] = ()
    lock: Mapping[str, Any] | None = None
    """What happens at the lock, for a live page: see `harness.live.watch`."""
    faults: Sequence[Fault] = ()
    """What was broken on purpose so far."""


class Fleet:
    """The member processes of one run. Use as `async with`: nothing outlives the block."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._members: list[_Member] = []
        self._frozen = 0
        self.capabilities: Mapping[str, Any] = {}

    async def __aenter__(self) -> "Fleet":
        """Start the processes; they can load their modules while the servers start."""
        try:
            for process in self._config.own_processes:
                self._members.append(await _Member.spawn(process, self._folder))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def connect(self, url: str, resource_url: str, freezes: Sequence[str] = ()) -> None:
        """Wait until each process has reached the lock server. `freezes` are the planned faults of holders.

        :raises UsageError: one of them cannot: no such server, no such TTL, a missing package.
        """
        for member in self._members:
            orders = Orders(
                config=self._config,
                url=url,
                resource_url=resource_url,
                process=member.process,
                folder=self._folder,
                freezes=freezes,
                path=sys.path,
            )
            member.order(orders.to_json())
        for member in self._members:
            self.capabilities = await member.ready()

    async def __aexit__(self, *_: object) -> None:
        for member in self._members:
            await member.aclose()

    def start(self, at: int | None = None) -> int:
        """Give the order to start, at once or `at` a time; returns the origin on the monotonic clock."""
        start = now() + round(_HEAD_START * NANOSECONDS) if at is None else at
        for member in self._members:
            member.order({"start": start})
        return start

    def stop(self) -> None:
        """End early: no further arrivals, a moment for holders to finish."""
        for member in self._members:
            member.order({"stop": True})

    def change_rate(self, rate: float, *, at: float, stage: int) -> None:
        """From `at` seconds of the run on; it is the schedule's stage with this number, from 0."""
        for member in self._members:
            member.order({"rate": rate, "at": at, "stage": stage})

    def freeze(self, fault: FaultSpec) -> None:
        """One holder more is to stand still, whichever process it belongs to."""
        self._frozen += 1
        self._members[self._frozen % len(self._members)].order({"freeze": str(fault)})

    async def finish(self, start: int, observe: Callable[[Progress], None]) -> FleetResult:
        """Follow the members until all have ended. `observe` gets the state twice a second."""
        latest: dict[int, MemberProgress] = {}
        news: set[int] = set()

        def heard(process: int, progress: MemberProgress) -> None:
            latest[process] = progress
            news.add(process)
            if len(news) >= sum(not member.ended for member in self._members):
                observe(_combined(list(latest.values())))
                news.clear()

        await asyncio.gather(*(member.follow(heard) for member in self._members))
        return self._result(start)

    def _result(self, start: int) -> FleetResult:
        recordings = []
        histories = []
        for member in self._members:
            part = recording_part(self._folder, member.process)
            if part.exists():
                recordings.append(Recording.from_json(json.loads(part.read_text())))
                part.unlink()
            history = history_part(self._folder, member.process)
            if history.exists():
                histories.append(history)
        done = [member.done for member in self._members if member.done is not None]
        died = {
            f"the lock server did not answer any more at the end: {report.died}"
            for report in done
            if report.died is not None
        }
        return FleetResult(
            start,
            Recording.merged(recordings),
            histories,
            self.capabilities,
            seconds=max((report.seconds for report in done), default=0.0),
            cpu=[report.cpu for report in done],
            commands=all_together(report.commands for report in done),
            max_loop_lag=max((report.max_loop_lag for report in done), default=0.0),
            dropped=sum(report.dropped for report in done),
            pauses=[report.pauses for report in done],
            failures=[member.failure for member in self._members if member.failure],
            silence=sorted(died),
            faults=[fault for report in done for fault in report.faults],
        )


class _Member:
    """The parent's end of one member process."""

    def __init__(self, process: int, child: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._child = child
        self._log = log
        self.done: MemberReport | None = None
        self.failure: str | None = None
        self.ended = False

    @classmethod
    async def spawn(cls, process: int, folder: Path) -> "_Member":
        log = folder / f"generator-{process}.log"
        with log.open("wb") as complaints:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "harness.load.member",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
                limit=_MAX_LINE,
                # Ctrl-C reaches the parent alone, which tells the members to stop.
                start_new_session=True,
            )
        return cls(process, child, log)

    def order(self, order: Mapping[str, Any]) -> None:
        assert self._child.stdin is not None
        if not self._child.stdin.is_closing():
            self._child.stdin.write(json.dumps(order).encode() + b"\n")

    async def ready(self) -> Mapping[str, Any]:
        """The capabilities of the lock server.

        :raises UsageError: the member cannot work with it.
        """
        async for report in self._reports():
            if "ready" in report:
                capabilities: Mapping[str, Any] = report["ready"]
                return capabilities
            if "error" in report:
                raise UsageError(report["error"])
        raise UsageError(self._obituary("could not start"))

    async def follow(self, heard: Callable[[int, MemberProgress], None]) -> None:
        async for report in self._reports():
            if "progress" in report:
                heard(self.process, MemberProgress.from_json(report["progress"]))
            elif "done" in report:
                self.done = MemberReport.from_json(report["done"])
            elif "error" in report:
                self.failure = report["error"]
        self.ended = True
        code = await self._child.wait()
        if self.failure is None and (self.done is None or code != 0):
            self.failure = self._obituary(f"ended with code {code} before the run was over")

    async def aclose(self) -> None:
        """End the process, kindly while that helps. Cancelled: it is killed."""
        try:
            if self._child.returncode is None:
                assert self._child.stdin is not None
                self._child.stdin.close()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._child.wait(), 5.0)
        finally:
            if self._child.returncode is None:
                self._child.kill()
                await self._child.wait()
            if self._log.exists() and not self._log.stat().st_size:
                self._log.unlink()

    async def _reports(self) -> AsyncIterator[Mapping[str, Any]]:
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            yield json.loads(line)

    def _obituary(self, what: str) -> str:
        said = self._log.read_text(errors="replace").strip().splitlines()
        return f"load generator process {self.process} {what}" + (f": {said[-1]}" if said else "")


def _combined(parts: Sequence[MemberProgress]) -> Progress:
    whole = Progress()
    for part in parts:
        whole.elapsed = max(whole.elapsed, part.at / NANOSECONDS)
        for counter in fields(Counters):
            value = getattr(whole.counters, counter.name) + getattr(part.counters, counter.name)
            setattr(whole.counters, counter.name, value)
        whole.offered_per_s += part.offered_per_s
        whole.acquired_per_s += part.acquired_per_s
        whole.busy += part.busy
        whole.waiting += part.waiting
        for name, text in part.recent.items():
            whole.recent.setdefault(name, Distribution()).merge(Distribution.from_text(text))
    whole.metrics = [part.metrics for part in parts if part.metrics is not None]
    told = [part.lock for part in parts if part.lock is not None]
    whole.lock = watch.merged(told) if told else None
    return whole
