"""Several servers that start and end together."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from harness.servers.errors import ServerFailed
from harness.servers.server import READY_WITHIN, Server

N = TypeVar("N", bound=Server)


class Group(Generic[N]):
    """Servers as a sequence: index them, count them, loop over them."""

    def __init__(self, nodes: Sequence[N]) -> None:
        self.nodes = list(nodes)

    def __getitem__(self, index: int) -> N:
        return self.nodes[index]

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[N]:
        return iter(self.nodes)

    @property
    def addresses(self) -> str:
        """`host:port` of every node, separated by commas, as lock URLs want them."""
        return ",".join(node.address for node in self.nodes)

    async def start(self) -> None:
        """Start all at once and return when each answers.

        :raises ServerFailed: of the first node that failed; close the group then. The others are no
            longer waited for, because members of a quorum would wait for the missing one.
        """
        try:
            async with asyncio.TaskGroup() as starts:
                for node in self.nodes:
                    starts.create_task(node.start())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class Peer(Server):
    """A server that takes part in elections."""

    @abstractmethod
    async def is_leader(self) -> bool:
        """Does it lead now? False when it cannot be reached."""


P = TypeVar("P", bound=Peer)


class Quorum(Group[P]):
    """Servers that elect a leader among themselves."""

    async def leader(self) -> P:
        """The member that leads now; waits while there is none.

        :raises ServerFailed: nobody was elected in time.
        """
        try:
            async with asyncio.timeout(READY_WITHIN):
                while True:
                    for node in self:
                        if node.running and await node.is_leader():
                            return node
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ServerFailed(f"No {self[0].kind} leader within {READY_WITHIN:.0f} s.") from None
