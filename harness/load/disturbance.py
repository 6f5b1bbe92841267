"""What a run's generators reach, and what is broken on purpose between and behind it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from harness.config import RunConfig
from harness.faults.nemesis import RunNemesis, Victim
from harness.faults.plan import FaultSpec, breakable
from harness.faults.reach import open_reach
from harness.faults.tcp_link import Link, open_link
from harness.history import Fault
from harness.load.targets import LockServer, Resource
from harness.servers.errors import ServerError


@dataclass(slots=True)
class Disturbance:
    """The addresses that the generators use, and the nemesis behind them."""

    url: str
    resource_url: str
    nemesis: RunNemesis
    plan: Sequence[FaultSpec]
    _start: int = field(default=0, init=False)
    _striking: "list[asyncio.Task[None]]" = field(default_factory=list, init=False)

    def begin(self, start: int) -> None:
        """The run's origin is known: faults come at their times from now on."""
        self._start = self.nemesis.journal.origin = start
        for fault in self.plan:
            self.add(fault)

    def add(self, fault: FaultSpec) -> None:
        """This one, too, at its time. Those of holders are the generators' affair."""
        if fault.target != "holder":
            self._striking.append(asyncio.create_task(self.nemesis.carry_out(fault, self._start)))

    async def end(self) -> None:
        """Break off what is still going on, and let the resource answer for what it has decided."""
        striking, self._striking = self._striking, []
        for task in striking:
            task.cancel()
        for outcome in await asyncio.gather(*striking, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        try:
            await self.nemesis.revive("resource")
        except ServerError as error:
            self.nemesis.failures.append(f"the resource did not start again after it was killed: {error}")

    @property
    def faults(self) -> list[Fault]:
        """What came about, on the run's clock."""
        return self.nemesis.journal.faults

    def unexpected(self, server: LockServer, silence: Sequence[str]) -> list[str]:
        """What went wrong by itself, a sentence each; `silence`: what generators said of the lock server."""
        found = list(self.nemesis.failures)
        if not all(map(self.nemesis.killed, server.dead())):
            found.append("the lock server died during the run")
        if "server" not in self.nemesis.broken:
            found += silence
        return found


@contextlib.asynccontextmanager
async def disturbed(
    config: RunConfig, plan: Sequence[FaultSpec], server: LockServer, resource: Resource
) -> AsyncIterator[Disturbance]:
    """Links where the plan cuts some, and a nemesis that waits for the run to begin."""
    url, resource_url = server.url, resource.url
    lock_links: Sequence[Link] = ()
    resource_links: Sequence[Link] = ()
    cut = {fault.target for fault in plan if fault.kind == "partition"}
    if config.steer:
        cut |= {target for kind, target in breakable(config) if kind == "partition"}
    async with contextlib.AsyncExitStack() as stack:
        if "server" in cut:
            reach = await stack.enter_async_context(open_reach(server.nodes, who="generators", url=url))
            url, lock_links = reach.url, reach.links
        if "resource" in cut:
            parts = urlsplit(resource.url)
            link = await stack.enter_async_context(open_link(parts.netloc, name="generators – resource"))
            resource_url = urlunsplit(parts._replace(netloc=link.address))
            resource_links = [link]
        victims = {"server": Victim(server.nodes, lock_links)}
        if resource.process is not None:
            victims["resource"] = Victim([resource.process], resource_links)
        disturbance = Disturbance(url, resource_url, RunNemesis(victims), plan)
        try:
            yield disturbance
        finally:
            await disturbance.end()
