"""One run, from the forks to the verdict."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.experiments.storm.load import load
from harness.experiments.storm.plan import CONTENDERS, PROCESSES, RunPlan
from harness.faults import FaultJournal
from harness.judge.checkers import Verdict, worst
from harness.lab.event import Event, Heard
from harness.lab.nemesis import Nemesis
from harness.lab.participant import Participant
from harness.lab.rig import Rig
from harness.lab.shared_set import Mode, SharedSet
from harness.lab.story import two_writers
from harness.lab.track import Track
from harness.lab.verdict import judge
from harness.load.clock import now
from harness.resource.process import Fence

# After it was told to stop: whoever still waits for a server by then is stuck, and is killed.
_ENDS_WITHIN = 8.0
_STARTS_WITHIN = 30.0

_MODES: Mapping[Fence, Mode] = {"on": "every operation", "writes": "writes only", "off": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    plan: RunPlan
    fence: Fence
    attempt: int
    """How many runs by the same plan went before, because they showed nothing."""
    folder: str
    """Where the run's files are, in the experiment's folder."""
    verdict: Verdict
    findings: Sequence[str]
    faults: Sequence[str]
    """Names of those that came about."""
    grants: int
    acknowledged: int
    refused: int
    """Stale writes and reads that the resource refused."""
    displaced: int
    """Holders that sent their write when the next one already had the lock."""
    unknown_writes: int
    """Without a reply."""
    stale_accepted: int
    """Writes that were accepted after a later holder's."""
    lost_updates: int
    """Acknowledged, and not in the set at the end."""
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """One row of `summary.json`."""
        figures = asdict(self)
        del figures["plan"]
        return {"seed": self.plan.seed, "backend": self.plan.backend, **figures}


@dataclass(slots=True)
class _RunTracks:
    """What the processes of a run said."""

    key: str
    journal: FaultJournal
    tracks: list[Track] = field(default_factory=list)
    ready: list[asyncio.Event] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    refused: int = 0

    def listener(self, process: int) -> Heard:
        """For a process that is to be started."""
        tracks = [Track(f"{process}.{number}", self.key) for number in range(CONTENDERS)]
        self.tracks += tracks
        ready = asyncio.Event()
        self.ready.append(ready)

        def heard(event: Event) -> None:
            if event.name == "ready":
                ready.set()
                return
            tracks[event.details["contender"]].add(event.since(self.journal.origin))
            if event.name == "accepted":
                self.acknowledged.append(event.details["element"])
            self.refused += event.name in ("refused", "stale")

        return heard


async def run_once(rig: Rig, plan: RunPlan, attempt: int = 0) -> Result:
    """Load and faults, then the verdict; leaves the rig as it found it. Each attempt has a key of its own.

    :raises ServerFailed: a server does not start again after its fault.
    :raises NeverHappened, TimeoutError: a process of the load does not start.
    """
    began = time.monotonic()
    name = f"run-{plan.seed}" if rig.fence == "on" else f"run-{plan.seed}-fence-{rig.fence}"
    if attempt:
        name += f"-again-{attempt}"
    recording = _RunTracks(f"storm:{name}", FaultJournal(now()))
    after = rig.view.logged
    try:
        async with contextlib.AsyncExitStack() as stack:
            participants = [
                await _participant(stack, rig, plan, recording, process) for process in range(PROCESSES)
            ]
            async with asyncio.timeout(_STARTS_WITHIN):
                await asyncio.gather(*(ready.wait() for ready in recording.ready))
            recording.journal.origin = now()
            for participant in participants:
                participant.go()
            nemesis = Nemesis(rig, participants, recording.journal)
            await asyncio.gather(
                nemesis.carry_out([fault] for fault in plan.faults), asyncio.sleep(plan.seconds - plan.ttl)
            )
            await asyncio.sleep(plan.ttl)  # so that the consequences of the last fault are part of the run
            await _stopped(participants)
    finally:
        for access in rig.accesses:
            access.mend()
    key = recording.key
    decisions = await rig.view.new_decisions(recording.journal.origin, lambda other: other == key)
    missing = await SharedSet(rig.view, _MODES[rig.fence]).lost(key, recording.acknowledged)
    judged = judge(
        rig.folder / name,
        recording.tracks,
        decisions,
        recording.journal,
        config=plan.to_json() | {"fence": rig.fence},
        after=after,
    )
    kept: Verdict = "violated" if missing else "ok"
    return Result(
        plan=plan,
        fence=rig.fence,
        attempt=attempt,
        folder=name,
        verdict=worst([judged.verdict, kept]),
        findings=[
            *(f"acknowledged, and not in the set at the end: update {element}" for element in missing),
            *judged.findings,
        ],
        faults=nemesis.came,
        grants=sum(row.granted is not None for row in judged.rows),
        acknowledged=len(recording.acknowledged),
        refused=recording.refused,
        displaced=judged.figure("exclusion", "displaced_writers"),
        unknown_writes=sum(row.write == "unknown" for row in judged.rows),
        stale_accepted=len(two_writers(decisions)),
        lost_updates=len(missing),
        seconds=round(time.monotonic() - began, 2),
    )


async def _participant(
    stack: contextlib.AsyncExitStack, rig: Rig, plan: RunPlan, recording: _RunTracks, process: int
) -> Participant:
    access = rig.accesses[process]
    spec = {
        "url": access.url,
        "resource": f"http://{access.resource_link.address}",
        "mode": _MODES[rig.fence],
        "key": recording.key,
        "seed": plan.seed,
        "process": process,
        "ttl": plan.ttl,
    }
    heard = recording.listener(process)
    return await stack.enter_async_context(
        rig.forkserver.participant(f"process {process}", load, spec, heard)
    )


async def _stopped(participants: Sequence[Participant]) -> None:
    """Tell all to stop and wait until they have; those that are stuck are killed by whoever made them."""
    for participant in participants:
        participant.tell("stop")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDS_WITHIN):
            await asyncio.gather(*(participant.over.wait() for participant in participants))
