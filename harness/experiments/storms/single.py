"""One run, from the forks to the verdict."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.checkers import Verdict, worst
from harness.clock import now
from harness.experiments.lab.story import two_writers
from harness.experiments.lab.track import Event, Track
from harness.experiments.storms.lane import Lane
from harness.experiments.storms.load import ROLE
from harness.experiments.storms.plan import CONTENDERS, PROCESSES, Plan
from harness.experiments.storms.weather import Weather
from harness.experiments.trials.crew import Heard, Member
from harness.experiments.trials.shared_set import Mode, SharedSet, lost
from harness.experiments.trials.verdict import judge
from harness.faults import FaultJournal
from harness.resource.process import Fence

# After it was told to stop: whoever still waits for a server by then is stuck, and is killed.
_ENDS_WITHIN = 8.0
# After the last fault, so that its consequences are part of the run, in TTLs.
_AFTERMATH = 1.0
_STARTS_WITHIN = 30.0

_MODES: Mapping[Fence, Mode] = {"on": "every operation", "writes": "writes only", "off": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run came to."""

    plan: Plan
    fence: Fence
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
    unknown: int
    """Writes without a reply."""
    stale_accepted: int
    """Writes that were accepted after a later holder's."""
    lost: int
    """Acknowledged, and not in the set at the end."""
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """One row of `summary.json`."""
        return {
            "seed": self.plan.seed,
            "backend": self.plan.backend,
            "fence": self.fence,
            "verdict": self.verdict,
            "faults": list(self.faults),
            "grants": self.grants,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "displaced": self.displaced,
            "unknown_writes": self.unknown,
            "stale_accepted": self.stale_accepted,
            "lost_updates": self.lost,
            "findings": list(self.findings[:5]),
            "seconds": round(self.seconds, 2),
        }


@dataclass(slots=True)
class _Recording:
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

        def heard(message: Mapping[str, Any]) -> None:
            details = dict(message)
            name, at = details.pop("event"), details.pop("at") - self.journal.origin
            if name == "ready":
                ready.set()
                return
            tracks[details.pop("contender")].add(Event(at, name, details))
            if name == "accepted":
                self.acknowledged.append(details["element"])
            self.refused += name in ("refused", "stale")

        return heard


async def run_once(lane: Lane, plan: Plan) -> Result:
    """Load and faults, then the verdict; leaves the lane as it found it.

    :raises ServerFailed: a server does not start again after its fault.
    :raises NeverHappened, TimeoutError: a process of the load does not start.
    """
    began = time.monotonic()
    name = f"run-{plan.seed}" if lane.fence == "on" else f"run-{plan.seed}-fence-{lane.fence}"
    recording = _Recording(f"storm:{name}", FaultJournal(now()))
    after = lane.log.after
    try:
        async with contextlib.AsyncExitStack() as stack:
            members = [await _member(stack, lane, plan, recording, process) for process in range(PROCESSES)]
            async with asyncio.timeout(_STARTS_WITHIN):
                await asyncio.gather(*(ready.wait() for ready in recording.ready))
            recording.journal.origin = now()
            for member in members:
                member.tell({"go": True})
            weather = Weather(lane, members, recording.journal)
            await asyncio.gather(_storm(weather, plan), asyncio.sleep(plan.seconds))
            await _stopped(members)
    finally:
        for slot in lane.slots:
            slot.mend()
    key, origin = recording.key, recording.journal.origin
    decisions = await lane.log.read(origin, mine=lambda other: other == key)
    shared = SharedSet(lane.resource.url, lane.session, _MODES[lane.fence])
    missing = lost(recording.acknowledged, (await shared.read(key)).elements)
    judged = judge(
        lane.folder / name,
        recording.tracks,
        decisions,
        origin=origin,
        faults=recording.journal.faults,
        config=plan.to_json() | {"fence": lane.fence},
        after=after,
    )
    kept: Verdict = "violated" if missing else "ok"
    return Result(
        plan=plan,
        fence=lane.fence,
        verdict=worst([judged.verdict, kept]),
        findings=[
            *(f"acknowledged, and not in the set at the end: update {element}" for element in missing),
            *judged.findings,
        ],
        faults=weather.came,
        grants=sum(row.granted is not None for row in judged.rows),
        acknowledged=len(recording.acknowledged),
        refused=recording.refused,
        displaced=judged.figure("exclusion", "displaced_writers"),
        unknown=sum(row.write == "unknown" for row in judged.rows),
        stale_accepted=len(two_writers(decisions)),
        lost=len(missing),
        seconds=time.monotonic() - began,
    )


async def _member(
    stack: contextlib.AsyncExitStack, lane: Lane, plan: Plan, recording: _Recording, process: int
) -> Member:
    slot = lane.slots[process]
    spec = {
        "url": slot.url,
        "resource": f"http://{slot.resource_link.address}",
        "mode": _MODES[lane.fence],
        "key": recording.key,
        "seed": plan.seed,
        "process": process,
        "ttl": plan.ttl,
    }
    heard = recording.listener(process)
    return await stack.enter_async_context(lane.crew.member(f"process {process}", ROLE, spec, heard))


async def _storm(weather: Weather, plan: Plan) -> None:
    await weather.carry_out(plan.faults)
    await asyncio.sleep(_AFTERMATH * plan.ttl)


async def _stopped(members: Sequence[Member]) -> None:
    """Tell all to stop and wait until they have; those that are stuck are killed by whoever made them."""
    for member in members:
        member.tell({"stop": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDS_WITHIN):
            await asyncio.gather(*(member.over.wait() for member in members))
