"""Carries out what is planned to break in a run: each fault at its time, for its time."""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.faults.journal import FaultJournal
from harness.faults.partition import partition
from harness.faults.plan import FaultSpec
from harness.faults.server_crash import crashed_server
from harness.faults.server_freeze import frozen_server
from harness.faults.tcp_link import Link
from harness.load.clock import now
from harness.servers.errors import ServerError
from harness.servers.server import Server

_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Victim:
    """What faults of one target strike: its processes, and the links that lead there."""

    processes: Sequence[Server] = ()
    links: Sequence[Link] = ()


class RunNemesis:
    """The faults of one run. Those of holders are not its affair: the generators freeze their own."""

    def __init__(self, victims: Mapping[str, Victim]) -> None:
        self._victims = victims
        self._dead: set[Server] = set()
        self.journal = FaultJournal(0)
        self.failures: list[str] = []
        """Faults that did not come about as planned, a sentence each."""
        self.broken: set[str] = set()
        """Targets that a fault keeps, or kept until it was broken off, from answering."""

    def killed(self, process: Server) -> bool:
        """Whether it is dead because it was killed on purpose."""
        return process in self._dead

    async def revive(self, target: str) -> None:
        """Start again what stayed dead of it.

        :raises ServerFailed: it does not start.
        """
        for process in self._dead.intersection(self._victims.get(target, Victim()).processes):
            await process.start()
            self._dead.discard(process)

    async def carry_out(self, fault: FaultSpec, start: int) -> None:
        """Break and mend. Cancelled: links and frozen processes are mended, what is dead stays dead."""
        await asyncio.sleep(max(0.0, fault.at + (start - now()) / _NANOSECONDS))
        self.broken.add(fault.target)
        try:
            await self._strike(fault)
        except ServerError as error:
            self.failures.append(f"the fault {fault} did not go as planned: {error}")
        self.broken.discard(fault.target)

    async def _strike(self, fault: FaultSpec) -> None:
        victim = self._victims[fault.target]
        which = slice(None) if fault.node is None else slice(fault.node - 1, fault.node)
        processes = victim.processes[which]
        async with contextlib.AsyncExitStack() as stack:
            if fault.kind == "partition":
                await stack.enter_async_context(partition(self.journal, victim.links[which]))
            elif fault.kind == "pause":
                for process in processes:
                    await stack.enter_async_context(frozen_server(self.journal, process))
            else:
                for process in processes:
                    await stack.enter_async_context(crashed_server(self.journal, process))
                    self._dead.add(process)
            await asyncio.sleep(math.inf if fault.seconds is None else fault.seconds)
        self._dead.difference_update(processes)
