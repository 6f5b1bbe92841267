"""Lab: what an experiment is given. Starts what several cases share, once, and ends it all."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from asyncdlock import LockError
from harness.lab.guarded_store import BUCKET, Kind, make_table
from harness.lab.loading import LoadingGate
from harness.lab.outcome import FAILED, NOT_SHOWN, OTHERWISE, SKIPPED, Case
from harness.lab.participant import Forkserver, open_forkserver
from harness.lab.resource_view import ResourceView
from harness.lab.scene import TIMELINE_FILE, Scene, slug
from harness.lab.track import NeverHappened
from harness.report.timeline import draw
from harness.resource.client import ResourceClient
from harness.resource.process import Fence, spawn
from harness.servers.catalogue import INSTALLATIONS, LockServer
from harness.servers.errors import ServerError, ServerMissing
from harness.servers.s3_node import s3

T = TypeVar("T")

FENCES: tuple[Fence, ...] = ("off", "on")
"""Most questions are asked twice: of a resource that compares nothing, and of one that does."""

_REPEATS = 2


@dataclass(frozen=True, slots=True)
class Plan:
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
        self._starting: dict[str, asyncio.Task[Any]] = {}
        self._attempts: Counter[str] = Counter()
        self._scenes: dict[str, Scene] = {}
        self.loading = LoadingGate()

    async def __aenter__(self) -> "Lab":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._starting.values():
            task.cancel()
        if self._starting:
            await asyncio.wait(self._starting.values())
        await self._stack.aclose()

    def plan(self, **step: Any) -> None:
        """Note a step of the schedule, as it was drawn: it goes into `summary.json`."""
        self.schedule.append(step)

    async def lock_server(self, backend: str) -> LockServer:
        """A server of that kind, shared by all cases that ask for it.

        :raises ServerMissing: it is not installed; the case is skipped.
        """

        async def start() -> LockServer:
            return await self._stack.enter_async_context(INSTALLATIONS[backend].start(tuned=True))

        return await self._once(backend, start)

    async def resource(self, fence: Fence = "on") -> ResourceView:
        """A fenced resource in its own process, shared by all cases that ask for the same mode."""

        async def start() -> ResourceView:
            process = await self._stack.enter_async_context(spawn(fence=fence))
            return self.view(process.url)

        return await self._once(f"resource {fence}", start)

    async def store(self, kind: Kind) -> str:
        """The URL of a store that guards are tried on, shared by all cases that ask for that kind.

        :raises ServerMissing: it is not installed; the case is skipped.
        """

        async def start() -> str:
            if kind == "postgres row":
                url = (await self.lock_server("postgres")).url
                await make_table(url)
                return url
            node = await self._stack.enter_async_context(s3())
            await node.create_bucket(BUCKET)
            return node.url

        return await self._once(kind, start)

    async def forkserver(self) -> Forkserver:
        """Where participants come from, for all cases."""

        async def start() -> Forkserver:
            return await self._stack.enter_async_context(open_forkserver(self.folder / "processes.log"))

        return await self._once("forkserver", start)

    def view(self, url: str) -> ResourceView:
        """Any resource, seen from outside."""
        client = ResourceClient(url)
        self._stack.push_async_callback(client.aclose)
        return ResourceView(client)

    def scene(
        self, name: str, resource: ResourceView | None = None, *, ttl: float, expected: str = "ok"
    ) -> Scene:
        """A new case; its files go into a folder of its own inside the experiment's."""
        self._attempts[name] += 1
        self._scenes[name] = Scene(
            name,
            self.folder / slug(name),
            resource,
            ttl=ttl,
            expected=expected,
            loading=self.loading,
            forkserver=self.forkserver,
            attempt=self._attempts[name],
        )
        return self._scenes[name]

    def fenced(
        self, name: str, fence: Fence, play: Callable[[Scene], Awaitable[Case]], *, ttl: float, expected: str
    ) -> Plan:
        """The case `NAME, fence on|off`: `play` is given its scene, whose resource is of that mode."""
        name = f"{name}, fence {fence}"

        async def run() -> Case:
            return await play(self.scene(name, await self.resource(fence), ttl=ttl, expected=expected))

        return Plan(name, expected, run)

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
        earlier: list[str] = []
        while case.observed in (NOT_SHOWN, FAILED, OTHERWISE) and len(earlier) < _REPEATS:
            earlier.append(f"{case.observed}{f' ({case.reason})' if case.reason else ''}")
            self.say(f"{plan.name}: {case.reason or case.observed}; once more")
            case = await _attempt(plan)
        if earlier:
            # Whoever reads the result shall know that it did not come at once.
            case = replace(case, facts={**case.facts, "attempts": len(earlier) + 1}, earlier=earlier)
        verdict = "as predicted" if case.as_predicted else case.reason or "NOT as predicted"
        self.say(f"{plan.name}: {case.observed} ({verdict})")
        return case

    def picture(self, *names: str) -> None:
        """Draw the scenes of these names below one another, as far as they came about."""
        scenes = (self._scenes[name] for name in names if name in self._scenes)
        if drawn := [scene.panel for scene in scenes if scene.panel is not None]:
            (self.folder / TIMELINE_FILE).write_text(draw(drawn))

    def chart(self, name: str, svg: str) -> None:
        """Keep a chart beside the evidence, where the report and documents find it."""
        (self.folder / f"{name}.svg").write_text(svg)

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
    except (ServerError, LockError, aiohttp.ClientError, OSError) as error:
        return instead(FAILED, error)
