"""Carries a plan's faults out: each at its time, for its time, on what the plan names."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from harness.experiments.storm.plan import Kind, PlannedFault
from harness.experiments.storm.rig import Rig
from harness.faults import (
    FaultJournal,
    Link,
    Way,
    crashed_server,
    delay,
    frozen_process,
    frozen_server,
    kill_process,
    partition,
)
from harness.lab.participant import Participant

# At most: a crashed server takes time to start besides, and a killed client stays dead.
_LONGEST: Mapping[Kind, float] = {"lock server crashed": 0.1, "resource crashed": 0.1, "client killed": 0.0}
_LATE_BY = 0.6  # of the fault's length: so that what was sent during the fault arrives within the run


class Nemesis:
    def __init__(self, rig: Rig, participants: Sequence[Participant], journal: FaultJournal) -> None:
        self._rig = rig
        self._participants = participants
        self._journal = journal
        self.came: list[Kind] = []
        """The faults that came about, as they ended."""

    async def carry_out(self, faults: Sequence[PlannedFault]) -> None:
        """Returns when all are over and every server runs again.

        When cancelled, frozen processes are continued and links mended; a crashed server stays down.

        :raises ServerFailed: a server does not start again.
        """
        await asyncio.gather(*(self._one(fault) for fault in faults))

    async def _one(self, fault: PlannedFault) -> None:
        await asyncio.sleep(fault.at)
        with contextlib.suppress(ProcessLookupError):  # a client that has already ended
            async with contextlib.AsyncExitStack() as stack:
                await asyncio.gather(*map(stack.enter_async_context, self._begin(fault)))
                await asyncio.sleep(min(fault.seconds, _LONGEST.get(fault.kind, fault.seconds)))
            self.came.append(fault.kind)

    def _begin(self, fault: PlannedFault) -> list[contextlib.AbstractAsyncContextManager[None]]:
        """What is to be broken at the same time, each for as long as its body runs."""
        journal, rig, client = self._journal, self._rig, self._participants[fault.process]
        nodes = [rig.nodes[number] for number in fault.nodes]
        ways = [Way(way) for way in fault.ways]
        match fault.kind:
            case "client frozen":
                return [frozen_process(journal, client.pid, who=client.name)]
            case "client killed":
                kill_process(journal, client.pid, who=client.name)
                return []
            case "lock server frozen":
                return [frozen_server(journal, node) for node in nodes]
            case "lock server crashed":
                return [crashed_server(journal, node) for node in nodes]
            case "resource frozen":
                return [frozen_server(journal, rig.resource)]
            case "resource crashed":
                return [crashed_server(journal, rig.resource)]
            case "lock link cut" | "resource link cut":
                return [partition(journal, self._links(fault), *ways, lose=fault.lose)]
            case "lock link slow" | "resource link slow":
                return [delay(journal, self._links(fault), _LATE_BY * fault.seconds, *ways)]

    def _links(self, fault: PlannedFault) -> list[Link]:
        access = self._rig.accesses[fault.process]
        if fault.kind.startswith("resource"):
            return [access.resource_link]
        return [access.lock_links[number] for number in fault.nodes]
