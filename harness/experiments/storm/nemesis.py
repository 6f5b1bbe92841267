"""Carries a plan's faults out: each at its time, for its time, on what the plan names."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

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

_CRASHED_FOR = 0.1  # at most, besides the time that it takes to start
_LATE_BY = 0.6  # of the fault's length: so that what was sent during the fault arrives within the run


class Nemesis:
    """The faults of one run."""

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
            await _KINDS[fault.kind](self, fault)
            self.came.append(fault.kind)

    async def _client_frozen(self, fault: PlannedFault) -> None:
        client = self._participants[fault.process]
        async with frozen_process(self._journal, client.pid, who=client.name):
            await asyncio.sleep(fault.seconds)

    async def _client_killed(self, fault: PlannedFault) -> None:
        client = self._participants[fault.process]
        kill_process(self._journal, client.pid, who=client.name)

    async def _lock_server_frozen(self, fault: PlannedFault) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for number in fault.nodes:
                await stack.enter_async_context(frozen_server(self._journal, self._rig.nodes[number]))
            await asyncio.sleep(fault.seconds)

    async def _lock_server_crashed(self, fault: PlannedFault) -> None:
        async def crash(number: int) -> None:
            async with crashed_server(self._journal, self._rig.nodes[number]):
                await asyncio.sleep(min(fault.seconds, _CRASHED_FOR))

        await asyncio.gather(*map(crash, fault.nodes))

    async def _resource_frozen(self, fault: PlannedFault) -> None:
        async with frozen_server(self._journal, self._rig.resource):
            await asyncio.sleep(fault.seconds)

    async def _resource_crashed(self, fault: PlannedFault) -> None:
        async with crashed_server(self._journal, self._rig.resource):
            await asyncio.sleep(min(fault.seconds, _CRASHED_FOR))

    async def _link_cut(self, fault: PlannedFault) -> None:
        async with partition(self._journal, self._links(fault), *map(Way, fault.ways), lose=fault.lose):
            await asyncio.sleep(fault.seconds)

    async def _link_slow(self, fault: PlannedFault) -> None:
        late = _LATE_BY * fault.seconds
        async with delay(self._journal, self._links(fault), late, *map(Way, fault.ways)):
            await asyncio.sleep(fault.seconds)

    def _links(self, fault: PlannedFault) -> list[Link]:
        access = self._rig.accesses[fault.process]
        if fault.kind.startswith("resource"):
            return [access.resource_link]
        return [access.lock_links[number] for number in fault.nodes]


_KINDS: Mapping[Kind, Callable[[Nemesis, PlannedFault], Awaitable[None]]] = {
    "client frozen": Nemesis._client_frozen,
    "client killed": Nemesis._client_killed,
    "lock server frozen": Nemesis._lock_server_frozen,
    "lock server crashed": Nemesis._lock_server_crashed,
    "lock link cut": Nemesis._link_cut,
    "lock link slow": Nemesis._link_slow,
    "resource frozen": Nemesis._resource_frozen,
    "resource crashed": Nemesis._resource_crashed,
    "resource link cut": Nemesis._link_cut,
    "resource link slow": Nemesis._link_slow,
}
