"""One round, from the forks to the verdict."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.faults import FaultJournal
from harness.judge.checkers import Verdict, worst
from harness.lab.event import Event, Heard
from harness.lab.forkserver import Role
from harness.lab.nemesis import Nemesis
from harness.lab.participant import Forkserver, Participant
from harness.lab.rig import Rig, open_rig
from harness.lab.shared_set import SharedSet
from harness.lab.track import Track
from harness.lab.verdict import Judged, judge
from harness.load.clock import now
from harness.resource.process import Fence
from harness.servers.redis_node import RedisNode
from harness.torture.leftovers import left_over, usable_again
from harness.torture.load import load
from harness.torture.plan import CONTENDERS, KEYS, PROCESSES, RoundPlan
from harness.torture.result import RoundResult
from harness.torture.sometimes import FAULTS
from harness.trace.grants import strangers
from harness.trace.monitor import MonitorLog, recorded
from harness.trace.redis_queue import Replay, names_of

TRACE_FILE = "trace.jsonl"
"""Each command of the server, if the model does not allow one of them."""

_STARTS_WITHIN = 60.0
_HOLDING = ("granted", "reading", "writing", "accepted", "stale")
"""The last word of a contender that never came to release the lock."""
_ENDS_WITHIN = 60.0
"""Seconds after which a process that was told to stop is stuck: far beyond its time-outs."""


@dataclass(slots=True)
class _Heard:
    """What the processes of a round said."""

    journal: FaultJournal
    tracks: list[Track] = field(default_factory=list)
    acknowledged: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in KEYS})
    visited: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    growth: list[int] = field(default_factory=list)

    def listener(self, name: str, ready: asyncio.Event, done: asyncio.Event) -> Heard:
        tracks = [Track(f"{name}.{number}", KEYS[number % len(KEYS)]) for number in range(CONTENDERS)]
        self.tracks += tracks

        def heard(event: Event) -> None:
            if event.name == "ready":
                ready.set()
            elif event.name == "done":
                self._done(name, event.details)
                done.set()
            else:
                track = tracks[event.details["contender"]]
                track.add(event.since(self.journal.origin))
                if event.name == "accepted":
                    self.acknowledged[track.key].append(event.details["element"])
                if event.name in ("refused", "stale"):
                    what = "read" if event.name == "refused" else "write"
                    self.visited[f"stale {what} refused"] += 1

        return heard

    def _done(self, name: str, told: Mapping[str, Any]) -> None:
        self.visited.update(told["visited"])
        before, after = told["before"], told["after"]
        self.growth.append(after["rss"] - before["rss"])
        self.findings += [f"{name} left a task behind: {task}" for task in told["tasks"]]
        if after["descriptors"] > before["descriptors"]:
            self.findings.append(
                f"{name} had {before['descriptors']} descriptors open before and {after['descriptors']} after"
            )


class _Crew:
    """The processes of a round; one that was killed is replaced."""

    def __init__(self, rig: Rig, plan: RoundPlan, heard: _Heard, role: Role) -> None:
        self._rig, self._plan, self._heard, self._role = rig, plan, heard, role
        self.present: list[Participant] = []
        self._stopping = asyncio.Event()
        self._lives: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Return when all are at work."""
        ready = [asyncio.Event() for _ in range(PROCESSES)]
        self.present = [None] * PROCESSES  # type: ignore[list-item]
        self._lives = [asyncio.create_task(self._live(number, ready[number])) for number in range(PROCESSES)]
        async with asyncio.timeout(_STARTS_WITHIN):
            await asyncio.gather(*(one.wait() for one in ready))
        self._heard.journal.origin = now()
        for participant in self.present:
            participant.go()

    async def _live(self, number: int, first_ready: asyncio.Event) -> None:
        life = 0
        while not self._stopping.is_set():
            name = f"process {number}" if not life else f"process {number}, life {life + 1}"
            ready, done = asyncio.Event(), asyncio.Event()
            heard = self._heard.listener(name, ready, done)
            spec = self._spec(number, life)
            async with self._rig.forkserver.participant(name, self._role, spec, heard) as participant:
                await _first(ready, participant.over)
                # Before, a signal of the nemesis would end it instead of cancelling its tasks.
                self.present[number] = participant
                first_ready.set()
                if life:
                    participant.go()
                if self._stopping.is_set():
                    participant.tell("stop")
                await participant.over.wait()
            killed = any(
                fault.name == "process killed" and fault.details["who"] == name
                for fault in self._heard.journal.faults
            )
            if not done.is_set() and not killed:
                self._heard.findings.append(f"{name} ended by itself: see processes.log")
                return
            life += 1

    def _spec(self, number: int, life: int) -> dict[str, Any]:
        access = self._rig.accesses[number]
        return {
            "backend": self._plan.backend,
            "url": access.url,
            "resource": f"http://{access.resource_link.address}",
            "seed": self._plan.seed,
            "process": number,
            "life": life,
            "ttl": self._plan.ttl,
        }

    async def stop(self) -> None:
        """Tell all to stop, and wait until they have."""
        self._stopping.set()
        for participant in self.present:
            participant.tell("stop")
        _, stuck = await asyncio.wait(self._lives, timeout=_ENDS_WITHIN)
        if stuck:
            self._heard.findings.append(
                f"{len(stuck)} processes did not end within {_ENDS_WITHIN:g} s of the end: somebody is stuck"
            )

    async def aclose(self) -> None:
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@contextlib.asynccontextmanager
async def _crew(rig: Rig, plan: RoundPlan, heard: _Heard, role: Role) -> AsyncIterator[_Crew]:
    crew = _Crew(rig, plan, heard, role)
    try:
        yield crew
    finally:
        await crew.aclose()


async def torture_round(
    plan: RoundPlan, forkserver: Forkserver, folder: Path, *, fence: Fence = "on", role: Role = load
) -> RoundResult:
    """Load and faults, then heal, drain, look at what is left, and judge.

    :raises ServerMissing: the backend's server is not installed.
    :raises ServerFailed: a server does not start, or not again after its fault.
    :raises NeverHappened, TimeoutError: a process of the load does not start.
    """
    heard = _Heard(FaultJournal(now()))
    async with _rig(plan, forkserver, folder, fence) as rig:
        async with _traced(rig, plan) as log, _crew(rig, plan, heard, role) as crew:
            await crew.start()
            links = [link for access in rig.accesses for link in access.lock_links]
            at_first = sum(link.accepted for link in links)
            nemesis = Nemesis(rig, crew.present, heard.journal)
            await asyncio.gather(nemesis.carry_out(plan.lanes), asyncio.sleep(plan.seconds))
            await crew.stop()
        heard.visited["reconnected"] += sum(link.accepted for link in links) - at_first
        heard.visited += await _errors_of(rig)
        origin = heard.journal.origin
        decisions = await rig.view.new_decisions(origin, lambda key: key in KEYS)
        shared = SharedSet(rig.view, "every operation")
        for key, elements in heard.acknowledged.items():
            lost = await shared.lost(key, elements)
            heard.findings += [f"acknowledged, and not in the set at the end: {one}" for one in lost]
        heard.findings += await usable_again(rig, plan.ttl)
        heard.findings += await left_over(rig)  # last: a waiter that was killed goes when it is passed over
    config = plan.to_json() | {"fence": fence}
    judged = judge(folder, heard.tracks, decisions, heard.journal, config=config)
    if log is not None:
        _replay(log, judged, heard, folder)
    return _result(plan, heard, nemesis, judged)


def _rig(
    plan: RoundPlan, forkserver: Forkserver, folder: Path, fence: Fence
) -> contextlib.AbstractAsyncContextManager[Rig]:
    return open_rig(
        plan.backend,
        forkserver,
        folder,
        processes=PROCESSES,
        fence=fence,
        replicated=plan.servers == "replicated",
        clocked=plan.servers == "clocked",
    )


def _traced(rig: Rig, plan: RoundPlan) -> contextlib.AbstractAsyncContextManager[MonitorLog | None]:
    """What the server does, if there is a model of its steps to hold it against."""
    (node, *others) = rig.nodes
    if plan.backend == "redis-queue" and isinstance(node, RedisNode) and not others:
        return recorded(node, [names_of(key) for key in KEYS])
    return contextlib.nullcontext()


def _replay(log: MonitorLog, judged: Judged, heard: _Heard, folder: Path) -> None:
    """Hold the server's steps against the model, and what the clients said against the server's steps."""
    replay = Replay().run(log)
    complaints = [f"the model does not allow {complaint}" for complaint in replay.complaints]
    if not log.gaps:
        complaints += strangers(judged.rows, replay.blocks)
    if complaints:
        log.write(folder / TRACE_FILE)
    heard.findings += complaints
    heard.visited["step of the server replayed"] += replay.steps
    heard.visited["replay resumed behind a gap"] += len(log.gaps)


async def _errors_of(rig: Rig) -> Counter[str]:
    """What the servers have answered since they started, as far as they count it."""
    counted: Counter[str] = Counter()
    for node in rig.nodes:
        if isinstance(node, RedisNode):
            stats = await node.command("INFO", "errorstats")
            for error in ("NOSCRIPT", "OOM"):
                counted[f"{error} answered"] += stats.get(f"errorstat_{error}", {}).get("count", 0)
    return counted


def _result(plan: RoundPlan, heard: _Heard, nemesis: Nemesis, judged: Judged) -> RoundResult:
    excused = judged.figure("holders", "excused")
    unknown = sum(row.write == "unknown" for row in judged.rows)
    visited = heard.visited
    visited += Counter(fault for fault in nemesis.came if fault in FAULTS)
    visited["lock taken away by an accident"] += excused
    visited["write without an answer"] += unknown
    visited["holder displaced before it wrote"] += judged.figure("exclusion", "displaced_writers")
    visited["holder killed with the lock in hand"] += sum(
        bool(track.events) and track.events[-1].name in _HOLDING for track in heard.tracks
    )
    own: Verdict = "violated" if heard.findings else "ok"
    return RoundResult(
        plan=plan,
        verdict=worst([judged.verdict, own]),
        findings=[*heard.findings, *judged.findings],
        faults=Counter(nemesis.came),
        failures=nemesis.failures,
        visited=visited,
        grants=sum(row.granted is not None for row in judged.rows),
        acknowledged=sum(map(len, heard.acknowledged.values())),
        refused=visited["stale read refused"] + visited["stale write refused"],
        unknown_writes=unknown,
        excused=excused,
        growth=heard.growth,
    )
