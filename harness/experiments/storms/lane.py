"""The servers and links of one backend, kept from run to run.

process 0 ──link──▶ lock server(s)        Each process has links of its own, so that each can
    └───────link──▶ resource              be cut off by itself, from either.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from harness import servers
from harness.experiments.lab.reach import open_reach
from harness.experiments.storms.plan import PROCESSES
from harness.experiments.trials.crew import Crew
from harness.experiments.trials.log import ResourceLog
from harness.faults import Link, open_link
from harness.resource.process import Fence, ResourceProcess, spawn
from harness.servers import Server


@dataclass(frozen=True, slots=True)
class Slot:
    """How one process of the load reaches the servers."""

    url: str
    lock_links: Sequence[Link]
    resource_link: Link

    def mend(self) -> None:
        """Undo what a run did to the links, and end what is left of its connections."""
        for link in (*self.lock_links, self.resource_link):
            link.mend()
            link.break_off()


class Lane:
    """One backend: runs follow each other here, while those of other backends go on beside it."""

    def __init__(
        self,
        backend: str,
        nodes: list[Server],
        resource: ResourceProcess,
        slots: list[Slot],
        crew: Crew,
        session: aiohttp.ClientSession,
        folder: Path,
    ) -> None:
        self.backend = backend
        self.nodes = nodes
        self.resource = resource
        self.slots = slots
        self.crew = crew
        self.session = session
        self.folder = folder
        self.log = ResourceLog(resource.url, session)

    @property
    def fence(self) -> Fence:
        return self.resource.fence

    async def set_fence(self, fence: Fence) -> None:
        """Start the resource again in another mode, on the same data.

        :raises ServerFailed: it does not come up.
        """
        if fence != self.fence:
            self.resource.fence = fence
            await self.resource.restart()


@contextlib.asynccontextmanager
async def open_lane(backend: str, crew: Crew, folder: Path) -> AsyncIterator[Lane]:
    """A lane for the length of an `async with`.

    :raises ServerMissing: the backend's server is not installed.
    :raises ServerFailed: it does not start.
    """
    async with contextlib.AsyncExitStack() as stack:
        nodes, resource = await asyncio.gather(
            stack.enter_async_context(_SERVERS[backend]()), stack.enter_async_context(spawn())
        )
        session = await stack.enter_async_context(aiohttp.ClientSession())
        slots = [await _slot(stack, backend, nodes, resource, process) for process in range(PROCESSES)]
        yield Lane(backend, nodes, resource, slots, crew, session, folder)
        await asyncio.sleep(0)


async def _slot(
    stack: contextlib.AsyncExitStack, backend: str, nodes: list[Server], resource: Server, process: int
) -> Slot:
    who = f"process {process}"
    reach = await stack.enter_async_context(open_reach(nodes, who=who, scheme=backend))
    to_resource = await stack.enter_async_context(open_link(resource.address, name=f"{who} – resource"))
    return Slot(reach.url + _IMPATIENCE[backend], reach.links, to_resource)


@contextlib.asynccontextmanager
async def _redis() -> AsyncIterator[list[Server]]:
    # With its data on disk: a counter that is lost is another experiment (`failover`).
    async with servers.redis(persistent=True) as node:
        yield [node]


@contextlib.asynccontextmanager
async def _redlock() -> AsyncIterator[list[Server]]:
    async with servers.redis_nodes(5, persistent=True) as nodes:
        yield [*nodes]


@contextlib.asynccontextmanager
async def _etcd() -> AsyncIterator[list[Server]]:
    # The system's: the wheel's 3.5.1 must not be killed and trusted (etcd #13766).
    async with servers.etcd(flavour="system", heartbeat_ms=50, election_ms=500) as cluster:
        yield [*cluster]


@contextlib.asynccontextmanager
async def _zookeeper() -> AsyncIterator[list[Server]]:
    async with servers.zookeeper() as ensemble:
        yield [*ensemble]


_SERVERS: Mapping[str, Callable[[], contextlib.AbstractAsyncContextManager[list[Server]]]] = {
    "redis": _redis,
    "redis-queue": _redis,
    "redlock": _redlock,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
}

# Patience with a server that is gone is cut short: a run lasts for a few seconds. etcd is started with an
# election time-out that allows leases of one second.
_IMPATIENCE: Mapping[str, str] = {
    "redis": "?call_timeout=1",
    "redis-queue": "?call_timeout=1",
    "redlock": "?call_timeout=1",
    "etcd": "?min_ttl=1&timeout=2&attempt_timeout=1",
    "zookeeper": "?connect_timeout=1",
}
