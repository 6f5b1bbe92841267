"""Carries a plan's faults out: each at its time, for its time, on what the plan names."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

from harness.experiments.storms.lane import Lane
from harness.experiments.storms.plan import Kind, PlannedFault
from harness.experiments.trials.crew import Member
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

_CRASHED_FOR = 0.1  # at most, besides the time that it takes to start
_LATE_BY = 0.6  # of the fault's length: so that what was sent during the fault arrives within the run


class Weather:
    """The faults of one run."""

    def __init__(self, lane: Lane, members: Sequence[Member], journal: FaultJournal) -> None:
        self._lane = lane
        self._members = members
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
        member = self._members[fault.process]
        async with frozen_process(self._journal, member.pid, who=member.name):
            await asyncio.sleep(fault.seconds)

    async def _client_killed(self, fault: PlannedFault) -> None:
        member = self._members[fault.process]
        kill_process(self._journal, member.pid, who=member.name)

    async def _lock_server_frozen(self, fault: PlannedFault) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for number in fault.nodes:
                await stack.enter_async_context(frozen_server(self._journal, self._lane.nodes[number]))
            await asyncio.sleep(fault.seconds)

    async def _lock_server_crashed(self, fault: PlannedFault) -> None:
        async def crash(number: int) -> None:
            async with crashed_server(self._journal, self._lane.nodes[number]):
                await asyncio.sleep(min(fault.seconds, _CRASHED_FOR))

        await asyncio.gather(*map(crash, fault.nodes))

    async def _resource_frozen(self, fault: PlannedFault) -> None:
        async with frozen_server(self._journal, self._lane.resource):
            await asyncio.sleep(fault.seconds)

    async def _resource_crashed(self, fault: PlannedFault) -> None:
        async with crashed_server(self._journal, self._lane.resource):
            await asyncio.sleep(min(fault.seconds, _CRASHED_FOR))

    async def _lock_link_cut(self, fault: PlannedFault) -> None:
        links = self._lane.slots[fault.process].lock_links
        await self._cut([links[number] for number in fault.nodes], fault)

    async def _resource_link_cut(self, fault: PlannedFault) -> None:
        await self._cut([self._lane.slots[fault.process].resource_link], fault)

    async def _lock_link_slow(self, fault: PlannedFault) -> None:
        links = self._lane.slots[fault.process].lock_links
        await self._slow([links[number] for number in fault.nodes], fault)

    async def _resource_link_slow(self, fault: PlannedFault) -> None:
        await self._slow([self._lane.slots[fault.process].resource_link], fault)

    async def _cut(self, links: Sequence[Link], fault: PlannedFault) -> None:
        async with partition(self._journal, links, *map(Way, fault.ways), lose=fault.lose):
            await asyncio.sleep(fault.seconds)

    async def _slow(self, links: Sequence[Link], fault: PlannedFault) -> None:
        async with delay(self._journal, links, _LATE_BY * fault.seconds, *map(Way, fault.ways)):
            await asyncio.sleep(fault.seconds)


_KINDS: Mapping[Kind, Callable[[Weather, PlannedFault], Awaitable[None]]] = {
    "client frozen": Weather._client_frozen,
    "client killed": Weather._client_killed,
    "lock server frozen": Weather._lock_server_frozen,
    "lock server crashed": Weather._lock_server_crashed,
    "lock link cut": Weather._lock_link_cut,
    "lock link slow": Weather._lock_link_slow,
    "resource frozen": Weather._resource_frozen,
    "resource crashed": Weather._resource_crashed,
    "resource link cut": Weather._resource_link_cut,
    "resource link slow": Weather._resource_link_slow,
}
