"""Carries planned faults out: each at its time, for its time, on what the plan names."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.faults import (
    FaultJournal,
    Link,
    Way,
    crashed_server,
    delay,
    frozen_process,
    frozen_server,
    full_disk,
    kill_process,
    killed_leader,
    partition,
    promoted_replica,
)
from harness.faults.accidents import ACCIDENTS, AccidentFailed, Site, accident
from harness.faults.clock import clock_jump_of_leases
from harness.faults.process import cancel_storm
from harness.lab.participant import Participant
from harness.lab.rig import Rig
from harness.servers import RedisNode, Server
from harness.servers.group import Peer

Kind = Literal[
    "client frozen",
    "client killed",
    "cancel storm",
    "lock server frozen",
    "lock server crashed",
    "lock server disk full",
    "clock jump",
    "failover",
    "lock link cut",
    "lock link slow",
    "resource frozen",
    "resource crashed",
    "resource disk full",
    "resource link cut",
    "resource link slow",
    "accident",
]

Broken = contextlib.AbstractAsyncContextManager[None]

# At most: a crashed server takes time to start besides, and a killed client stays dead.
_LONGEST: Mapping[Kind, float] = {
    "lock server crashed": 0.1,
    "resource crashed": 0.1,
    "client killed": 0.0,
    "cancel storm": 0.0,
}
_LATE_BY = 0.6  # of the fault's length: so that what was sent during the fault arrives within the run


@dataclass(frozen=True, slots=True)
class PlannedFault:
    kind: Kind
    at: float
    """Seconds after the load began."""
    seconds: float
    """How long it lasts; a crashed server is started again sooner, a slow link is late by a part of it."""
    process: int
    """Whose: for faults of a client or of its links."""
    nodes: tuple[int, ...]
    """Which lock servers: for faults of theirs."""
    ways: tuple[str, ...] = ("to server", "to client")
    lose: bool = False
    """A cut link loses what is sent meanwhile; otherwise that arrives late."""
    accident: str = ""
    """The name of an accident in `harness.faults.accidents`."""
    key: str = ""
    """The lock that an accident is about."""
    jump: float = 0.0
    """By how many seconds a clock is wrong."""


class Nemesis:
    """Breaks what a rig consists of, and those who use it. `participants` may be replaced meanwhile."""

    def __init__(self, rig: Rig, participants: Sequence[Participant], journal: FaultJournal) -> None:
        self._rig = rig
        self._participants = participants
        self._journal = journal
        self._strikes: Mapping[Kind, Callable[[PlannedFault], list[Broken]]] = {
            "client frozen": self._freeze_client,
            "client killed": self._kill_client,
            "cancel storm": self._cancel,
            "lock server frozen": lambda fault: [frozen_server(journal, one) for one in self._nodes(fault)],
            "lock server crashed": lambda fault: [crashed_server(journal, one) for one in self._nodes(fault)],
            "lock server disk full": lambda fault: [full_disk(journal, one) for one in self._nodes(fault)],
            "clock jump": lambda fault: [self._clock_jump(fault)],
            "failover": lambda fault: [self._failover(fault)],
            "resource disk full": lambda fault: [full_disk(journal, rig.resource)],
            "resource frozen": lambda fault: [frozen_server(journal, rig.resource)],
            "resource crashed": lambda fault: [crashed_server(journal, rig.resource)],
            "lock link cut": self._cut,
            "resource link cut": self._cut,
            "lock link slow": self._slow,
            "resource link slow": self._slow,
            "accident": lambda fault: [self._accident(fault)],
        }
        self.came: list[str] = []
        """The faults that came about, as they ended; of an accident its own name."""
        self.failures: list[str] = []
        """Accidents that did not come about, a sentence each."""

    async def carry_out(self, lanes: Iterable[Sequence[PlannedFault]]) -> None:
        """Returns when all are over and every server runs again. The faults of a lane wait for each other.

        When cancelled, frozen processes are continued and links mended; a crashed server stays down.

        :raises ServerFailed: a server does not start again.
        """
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(self._in_turn(lane, began))
        except ExceptionGroup as failures:  # one server that does not start is enough
            raise failures.exceptions[0] from None

    async def _in_turn(self, lane: Sequence[PlannedFault], began: float) -> None:
        for fault in lane:
            await asyncio.sleep(max(0.0, began + fault.at - asyncio.get_running_loop().time()))
            try:
                await self._one(fault)
            except ProcessLookupError:  # a client that has already ended
                continue
            except AccidentFailed as failed:
                self.failures.append(str(failed))

    async def _one(self, fault: PlannedFault) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await asyncio.gather(*map(stack.enter_async_context, self._strikes[fault.kind](fault)))
            await asyncio.sleep(min(fault.seconds, _LONGEST.get(fault.kind, fault.seconds)))
        self.came.append(fault.accident or fault.kind)

    def _client(self, fault: PlannedFault) -> Participant:
        client = self._participants[fault.process]
        if client.over.is_set():
            raise ProcessLookupError
        return client

    def _freeze_client(self, fault: PlannedFault) -> list[Broken]:
        client = self._client(fault)
        return [frozen_process(self._journal, client.pid, who=client.name)]

    def _kill_client(self, fault: PlannedFault) -> list[Broken]:
        client = self._client(fault)
        kill_process(self._journal, client.pid, who=client.name)
        return []

    def _cancel(self, fault: PlannedFault) -> list[Broken]:
        client = self._client(fault)
        cancel_storm(self._journal, client.pid, who=client.name)
        return []

    def _nodes(self, fault: PlannedFault) -> list[Server]:
        return [self._rig.nodes[number] for number in fault.nodes]

    def _cut(self, fault: PlannedFault) -> list[Broken]:
        return [partition(self._journal, self._links(fault), *map(Way, fault.ways), lose=fault.lose)]

    def _slow(self, fault: PlannedFault) -> list[Broken]:
        return [delay(self._journal, self._links(fault), _LATE_BY * fault.seconds, *map(Way, fault.ways))]

    def _failover(self, fault: PlannedFault) -> Broken:
        members = [node for node in self._rig.nodes if isinstance(node, Peer)]
        if members:
            return killed_leader(self._journal, members)
        nodes = [node for node in self._rig.nodes if isinstance(node, RedisNode)]
        links = [access.lock_links[0] for access in self._rig.accesses]
        return promoted_replica(self._journal, nodes, links, trusted_after=fault.seconds)

    def _clock_jump(self, fault: PlannedFault) -> Broken:
        clock, after = self._rig.clock, fault.seconds
        if clock is None:
            raise AccidentFailed("no clock was set: libfaketime is not installed")
        return clock_jump_of_leases(self._journal, clock, fault.jump, who="lock servers", trusted_after=after)

    def _links(self, fault: PlannedFault) -> list[Link]:
        access = self._rig.accesses[fault.process]
        if fault.kind.startswith("resource"):
            return [access.resource_link]
        return [access.lock_links[number] for number in fault.nodes]

    @contextlib.asynccontextmanager
    async def _accident(self, fault: PlannedFault) -> AsyncIterator[None]:
        site = Site(self._nodes(fault)[0], self._rig.url, fault.key)
        async with accident(self._journal, ACCIDENTS[fault.accident], site):
            yield
