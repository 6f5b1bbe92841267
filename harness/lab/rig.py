"""The servers and links of one backend, kept from run to run.

process 0 ──link──▶ lock server(s)        Each process has links of its own, so that each can
    └───────link──▶ resource              be cut off by itself, from either.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.faults import FakeClock, Link, open_link
from harness.faults.reach import open_reach
from harness.lab.participant import Forkserver
from harness.lab.resource_view import ResourceView
from harness.load.targets import with_options
from harness.resource.client import ResourceClient
from harness.resource.process import Fence, ResourceProcess, spawn
from harness.servers import Server, ServerMissing
from harness.servers.catalogue import INSTALLATIONS
from harness.servers.redis_node import find_binary


@dataclass(frozen=True, slots=True)
class Access:
    """How one process of the load reaches the servers."""

    url: str
    lock_links: Sequence[Link]
    resource_link: Link

    def mend(self) -> None:
        """Undo what a run did to the links, and end what is left of its connections."""
        for link in (*self.lock_links, self.resource_link):
            link.mend()
            link.break_off()


@dataclass(frozen=True, slots=True)
class Rig:
    """One backend: runs follow each other here, while those of other backends go on beside it."""

    url: str
    """Of the lock server, without links."""
    nodes: Sequence[Server]
    resource: ResourceProcess
    view: ResourceView
    accesses: Sequence[Access]
    forkserver: Forkserver
    folder: Path
    clock: FakeClock | None = None
    """Of all lock servers, if it can be set."""

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


def _clock(stack: contextlib.AsyncExitStack) -> tuple[FakeClock | None, dict[str, Any]]:
    """A clock, and what the servers are started with so that it is theirs: none where it cannot be had."""
    try:
        clock = stack.enter_context(FakeClock())
        return clock, {"binary": find_binary("valkey"), "environment": clock.environment}
    except ServerMissing:
        return None, {}


@contextlib.asynccontextmanager
async def open_rig(
    backend: str,
    forkserver: Forkserver,
    folder: Path,
    *,
    processes: int,
    fence: Fence = "on",
    log: bool = True,
    replicated: bool = False,
    clocked: bool = False,
) -> AsyncIterator[Rig]:
    """A rig for the length of an `async with`; this many processes can reach its servers.

    Without a `log` the resource keeps nothing of its decisions. `clocked` servers, which must be Redis's,
    have a clock that can be set, where libfaketime is installed.

    :raises ServerMissing: the backend's server is not installed.
    :raises ServerFailed: it does not start.
    """
    installation = INSTALLATIONS[backend]
    async with contextlib.AsyncExitStack() as stack:
        # Durable: a counter that is lost is another experiment (`failover`).
        clock, more = _clock(stack) if clocked else (None, {})
        server, resource = await asyncio.gather(
            stack.enter_async_context(
                installation.start(tuned=True, durable=True, replicated=replicated, **more)
            ),
            stack.enter_async_context(spawn(fence=fence, log=log)),
        )
        accesses = []
        for process in range(processes):
            who = f"process {process}"
            reach = await stack.enter_async_context(open_reach(server.nodes, who=who, url=server.url))
            link = await stack.enter_async_context(open_link(resource.address, name=f"{who} – resource"))
            # Patience with a server that is gone is cut short: a run lasts for a few seconds.
            accesses.append(Access(with_options(reach.url, installation.impatience), reach.links, link))
        client = await stack.enter_async_context(ResourceClient(resource.url))
        yield Rig(
            with_options(server.url, installation.impatience),
            server.nodes,
            resource,
            ResourceView(client),
            accesses,
            forkserver,
            folder,
            clock,
        )
