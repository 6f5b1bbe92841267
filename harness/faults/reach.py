"""What one client can reach of a group of servers: a link of its own to every node."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence

from harness.faults.journal import FaultJournal
from harness.faults.partition import partition
from harness.faults.tcp_link import Link, Way, open_link
from harness.servers.ports import free_port
from harness.servers.server import Server


class Reach:
    """One client's links, in the order of the nodes; see `open_reach`."""

    def __init__(self, links: Sequence[Link], scheme: str) -> None:
        self.links = links
        self._scheme = scheme

    @property
    def url(self) -> str:
        """All nodes by way of the links."""
        return f"{self._scheme}://{','.join(link.address for link in self.links)}"

    def without(
        self, journal: FaultJournal, nodes: Iterable[int], *ways: Way
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Cut this client off from the nodes with these numbers, for as long as a body runs."""
        return partition(journal, [self.links[number] for number in nodes], *ways)


@contextlib.asynccontextmanager
async def open_reach(nodes: Sequence[Server], *, who: str, scheme: str = "redlock") -> AsyncIterator[Reach]:
    """Links from the client `who` to every node, for the length of an `async with`.

    Ports rise in the order of the nodes' own: Redlock sorts its nodes by address, and the clients of
    one group must agree on the order.
    """
    by_port = sorted(range(len(nodes)), key=lambda number: nodes[number].port)
    ports = dict(zip(by_port, sorted(free_port() for _ in nodes), strict=True))
    async with contextlib.AsyncExitStack() as stack:
        links = [
            await stack.enter_async_context(
                open_link(node.address, name=f"{who} – node {number + 1}", port=ports[number])
            )
            for number, node in enumerate(nodes)
        ]
        yield Reach(links, scheme)
