"""Five nodes, two clients with a link to each of them, and what happens to nodes and links."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from harness import servers
from harness.faults import FakeClock, Link, Way, clock_jump, crashed_server
from harness.lab import Lab, Reach, Scene, open_reach
from harness.lab.clocks import open_clocked_nodes

NODES = 5
LONG = 30.0  # a TTL that no case outlives: whoever holds the lock there has never been late


@dataclass(frozen=True, slots=True)
class Sides:
    """Which nodes the clients reach: A the first three of `order`, B the last three."""

    order: tuple[int, ...]

    @property
    def shared(self) -> int:
        return self.order[2]

    @property
    def hidden_from_a(self) -> tuple[int, ...]:
        return self.order[3:]

    @property
    def hidden_from_b(self) -> tuple[int, ...]:
        return self.order[:2]


@dataclass(frozen=True, slots=True)
class Stage:
    scene: Scene
    nodes: servers.RedisNodes
    clocks: Sequence[FakeClock]
    shared: int
    a: Reach
    b: Reach


@contextlib.asynccontextmanager
async def open_stage(
    lab: Lab, scene: Scene, sides: Sides | None = None, *, clocks: bool = False, persistent: bool = False
) -> AsyncIterator[Stage]:
    """Five nodes and two clients' links to them; with `sides`, each client reaches its own three only."""

    async with contextlib.AsyncExitStack() as stack:
        fakes: list[FakeClock] = []
        if clocks:
            nodes, fakes = await stack.enter_async_context(open_clocked_nodes(lab, [1.0] * NODES))
        else:
            async with lab.loading.one():
                nodes = await stack.enter_async_context(servers.redis_nodes(NODES, persistent=persistent))
        a = await stack.enter_async_context(open_reach(nodes.nodes, who="A", url=nodes.url))
        b = await stack.enter_async_context(open_reach(nodes.nodes, who="B", url=nodes.url))
        if sides is not None:
            await stack.enter_async_context(a.without(scene.journal, sides.hidden_from_a))
            await stack.enter_async_context(b.without(scene.journal, sides.hidden_from_b))
        yield Stage(scene, nodes, fakes, 0 if sides is None else sides.shared, a, b)


class HeldAnswers:
    """Lets a client's first request for a lock pass every link, and holds back the answers to it."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._asked = dict.fromkeys(links, 0)
        self._answered: set[Link] = set()
        self._all_asked = asyncio.Event()
        self._all_there = asyncio.Event()
        for link in links:
            link.watch = partial(self._watch, link)

    @property
    def asked_once(self) -> bool:
        """Whether the client has sent nothing since: it still waits."""
        return set(self._asked.values()) == {1}

    async def asked(self) -> None:
        """Return when the request is on its way to every node."""
        async with asyncio.timeout(LONG):
            await self._all_asked.wait()

    async def all_there(self) -> None:
        """Return when every node has answered."""
        async with asyncio.timeout(LONG):
            await self._all_there.wait()

    def let_go(self) -> None:
        for link in self._links:
            link.watch = lambda way, data: None
            link.mend()

    def _watch(self, link: Link, way: Way, data: bytes) -> None:
        if way is Way.TO_SERVER and b"EVAL" in data:
            self._asked[link] += 1
            link.hold(Way.TO_CLIENT)
            if all(self._asked.values()):
                self._all_asked.set()
        elif way is Way.TO_CLIENT and self._asked[link]:
            self._answered.add(link)
            if len(self._answered) == len(self._links):
                self._all_there.set()


async def jump(stage: Stage) -> None:
    """The clock of the shared node is set forward past the TTL, and back again."""
    who = f"node {stage.shared + 1}"
    async with clock_jump(stage.scene.journal, stage.clocks[stage.shared], LONG + 1, who=who):
        # Redis deletes what has expired when it is next touched.
        await stage.nodes[stage.shared].command("EXISTS", stage.scene.key)


async def restart(stage: Stage) -> None:
    """kill -9 and start again; whether it still knows its locks depends on its persistence."""
    node, who = stage.nodes[stage.shared], f"node {stage.shared + 1}"
    async with crashed_server(stage.scene.journal, node, who=who):
        pass
