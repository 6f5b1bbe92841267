"""What one client can reach of a group of servers: a link of its own to every node."""

import contextlib
import re
from collections.abc import AsyncIterator, Iterable, Sequence

from harness.faults.journal import FaultJournal
from harness.faults.partition import partition
from harness.faults.tcp_link import Link, Way, open_link
from harness.servers.ports import free_port
from harness.servers.server import Server

_ADDRESS = re.compile(r"[\w.]+:\d+")


class Reach:
    """One client's links, in the order of the nodes; see `open_reach`."""

    def __init__(self, links: Sequence[Link], url: str) -> None:
        self.links = links
        detours = {link.target: link.address for link in links}
        self.url = _ADDRESS.sub(lambda found: detours.get(found[0], found[0]), url)
        """All nodes by way of the links."""

    def without(
        self, journal: FaultJournal, nodes: Iterable[int], *ways: Way
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Cut this client off from the nodes with these numbers, for as long as a body runs."""
        return partition(journal, [self.links[number] for number in nodes], *ways)


@contextlib.asynccontextmanager
async def open_reach(nodes: Sequence[Server], *, who: str, url: str) -> AsyncIterator[Reach]:
    """Links from the client `who` to every node, for the length of an `async with`; `url` is the direct way.

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
        yield Reach(links, url)
