"""Lab: what an experiment is given. Starts what several cases share, once, and ends it all."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from asyncdlock import LockError
from harness import servers
from harness.experiments.lab.loading import Loading
from harness.experiments.lab.resource_view import ResourceView
from harness.experiments.lab.scene import TIMELINE_FILE, Scene, slug
from harness.experiments.lab.track import NeverHappened
from harness.experiments.outcome import FAILED, NOT_SHOWN, OTHERWISE, SKIPPED, Case
from harness.report.timeline import Panel, draw
from harness.resource.process import Fence, spawn
from harness.servers.errors import ServerError, ServerMissing
from harness.servers.server import Server

T = TypeVar("T")

_REPEATS = 2


@dataclass(frozen=True, slots=True)
class LockServer:
    """A running lock server or group of them."""

    url: str
    nodes: list[Server]


@dataclass(frozen=True, slots=True)
class Plan:
    """A case that is to be run."""

    name: str
    expected: str
    run: Callable[[], Coroutine[Any, Any, Case]]


class Lab:
    """The means of one experiment, for its length.

    `rng` is seeded: draw from it before anything runs at the same time, and note with `plan` what was
    drawn, so that one seed always gives one schedule.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quick: bool,
        seed: int,
        say: Callable[[str], None],
        runs: int | None = None,
    ) -> None:
        self.folder = folder
        self.quick = quick
        self.seed = seed
        self.runs = runs
        """How many runs are asked for; None: as many as the experiment sees fit."""
        self.rng = random.Random(seed)
        self.say = say
        self.schedule: list[Mapping[str, Any]] = []
        self._stack = contextlib.AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._starting: dict[str, asyncio.Task[Any]] = {}
        self._attempts: Counter[str] = Counter()
        self.loading = Loading()

    async def __aenter__(self) -> "Lab":
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._starting.values():
            task.cancel()
        if self._starting:
            await asyncio.wait(self._starting.values())
        await self._stack.aclose()
        await asyncio.sleep(0)  # aiohttp closes its sockets in the next turn of the loop

    def plan(self, **step: Any) -> None:
        """Note a step of the schedule, as it was drawn: it goes into `summary.json`."""
        self.schedule.append(step)

    async def lock_server(self, backend: str) -> LockServer:
        """A server of that kind, shared by all cases that ask for it.

        :raises ServerMissing: it is not installed; the case is skipped.
        """

        async def start() -> LockServer:
            return await self._stack.enter_async_context(BACKENDS[backend]())

        return await self._once(backend, start)

    async def resource(self, fence: Fence = "on") -> ResourceView:
        """A fenced resource in its own process, shared by all cases that ask for the same mode."""

        async def start() -> ResourceView:
            process = await self._stack.enter_async_context(spawn(fence=fence))
            return self.view(process.url)

        return await self._once(f"resource {fence}", start)

    def view(self, url: str) -> ResourceView:
        """Any resource, seen from outside."""
        assert self._session is not None
        return ResourceView(url, self._session)

    def scene(self, name: str, resource: ResourceView | None = None, *, ttl: float) -> Scene:
        """A new case; its files go into a folder of its own inside the experiment's."""
        self._attempts[name] += 1
        return Scene(
            name,
            self.folder / slug(name),
            resource,
            ttl=ttl,
            loading=self.loading,
            attempt=self._attempts[name],
        )

    async def cases(self, plans: Iterable[Plan]) -> list[Case]:
        """Run cases at the same time.

        One whose server is not installed is skipped with the reason. One whose schedule did not come
        about, that broke down, or whose figures are not as predicted, is repeated: a busy machine must
        not be mistaken for a result. A verdict of the checkers is one, and final.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._case(plan)) for plan in plans]
        return [task.result() for task in tasks]

    async def _case(self, plan: Plan) -> Case:
        case = await _attempt(plan)
        attempts = 1
        while case.observed in (NOT_SHOWN, FAILED, OTHERWISE) and attempts <= _REPEATS:
            self.say(f"{plan.name}: {case.reason or case.observed}; once more")
            case = await _attempt(plan)
            attempts += 1
        if attempts > 1:
            # Whoever reads the result shall know that it did not come at once.
            case = replace(case, facts={**case.facts, "attempts": attempts})
        verdict = "as predicted" if case.as_predicted else case.reason or "NOT as predicted"
        self.say(f"{plan.name}: {case.observed} ({verdict})")
        return case

    def picture(self, panels: Iterable[Panel | None]) -> None:
        """Draw the panels of some scenes below one another as the experiment's own picture."""
        drawn = [panel for panel in panels if panel is not None]
        if drawn:
            (self.folder / TIMELINE_FILE).write_text(draw(drawn))

    async def enter(self, context: contextlib.AbstractAsyncContextManager[T]) -> T:
        """Start something for the rest of the experiment."""
        async with self.loading.one():
            return await self._stack.enter_async_context(context)

    async def _once(self, name: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self.loading.going_on():
            if name not in self._starting:
                self._starting[name] = asyncio.create_task(start())
            # A cancelled case must not stop what others wait for as well.
            started: T = await asyncio.shield(self._starting[name])
            return started


async def _attempt(plan: Plan) -> Case:
    def instead(observed: str, error: Exception) -> Case:
        reason = " ".join(str(error).split()) or type(error).__name__
        return Case(name=plan.name, expected=plan.expected, observed=observed, reason=reason)

    try:
        return await plan.run()
    except ServerMissing as missing:
        return instead(SKIPPED, missing)
    except NeverHappened as error:
        return instead(NOT_SHOWN, error)
    except (ServerError, LockError, aiohttp.ClientError, OSError, TimeoutError) as error:
        return instead(FAILED, error)


@contextlib.asynccontextmanager
async def _redis(scheme: str) -> AsyncIterator[LockServer]:
    async with servers.redis() as node:
        yield LockServer(node.url.replace("redis://", f"{scheme}://", 1), [node])


@contextlib.asynccontextmanager
async def _redlock() -> AsyncIterator[LockServer]:
    async with servers.redis_nodes(5) as nodes:
        yield LockServer(nodes.url, [*nodes])


@contextlib.asynccontextmanager
async def _etcd() -> AsyncIterator[LockServer]:
    # Tuned for leases of one second; as it comes, etcd does no shorter than two.
    async with servers.etcd(heartbeat_ms=50, election_ms=500) as cluster:
        yield LockServer(cluster.url, [*cluster])


@contextlib.asynccontextmanager
async def _zookeeper() -> AsyncIterator[LockServer]:
    async with servers.zookeeper() as ensemble:
        yield LockServer(ensemble.url, [*ensemble])


BACKENDS: Mapping[str, Callable[[], contextlib.AbstractAsyncContextManager[LockServer]]] = {
    "redis": lambda: _redis("redis"),
    "redis-queue": lambda: _redis("redis-queue"),
    "redlock": _redlock,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
}
"""How to start the lock server of every backend that more than one process can share."""
