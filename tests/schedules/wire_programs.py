"""Random programs of whole clients of redis-queue:// on virtual time, over a network that fails them.

A plan is drawn from a seed and is plain data: what fails is run again with less of it, while it still fails.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from asyncdlock._local_queue import LocalQueue
from asyncdlock.backends.redis.fence_counter import fence_counter
from asyncdlock.backends.redis.queue import QueueBackend
from asyncdlock.backends.redis.server import Server
from asyncdlock.client import LockClient
from asyncdlock.errors import AcquireTimeout, LockError
from asyncdlock.handle import Handle
from tests.schedules.fake_wire import Network
from tests.schedules.interleavings import Violation
from tests.schedules.loop import START, Stuck, VirtualLoop, fresh_loop

KEY = "key"
TTL = 1.0
_LONGEST = 2000.0
_FOR_EVER = 200 * TTL
"""A patience that nobody needs: whoever has it is served."""
_HANDOFFS = (None, 0, 2)
"""Of each client: no local queue, one without hand-off, one with it."""


@dataclass(frozen=True, slots=True)
class WireVisit:
    client: int
    task: int
    how: Literal["acquire", "try", "hold"]
    pause: float
    timeout: float
    body: float
    cancel_after: float | None


@dataclass(frozen=True, slots=True)
class NetworkFault:
    at: float
    what: Literal["cut", "scripts forgotten"]


@dataclass(frozen=True, slots=True)
class WirePlan:
    """One program and what happens to it."""

    seed: int
    slow: float
    handoffs: tuple[int | None, ...]
    visits: tuple[WireVisit, ...]
    faults: tuple[NetworkFault, ...]

    @property
    def calm(self) -> bool:
        """Nothing fails, and nobody overstays the lease or is cancelled."""
        return not (self.slow or self.faults or any(visit.cancel_after is not None for visit in self.visits))


def draw(seed: int) -> WirePlan:
    """The same seed, the same plan."""
    rng = random.Random(f"wire {seed}")
    clients = rng.choice((1, 2, 2, 3))
    visits = tuple(
        WireVisit(
            client,
            task,
            rng.choice(("acquire", "hold", "hold", "try")),
            rng.choice((0.0, 0.0, 0.3)) * rng.random(),
            rng.choice((0.05, 2 * TTL, _FOR_EVER, _FOR_EVER)),
            rng.choice((0.0, 0.01, 0.3 * TTL, 1.6 * TTL)) * rng.random(),
            rng.choice((None, None, None, 0.5 * rng.random())),
        )
        for client in range(clients)
        for task in range(rng.choice((1, 2, 3)))
        for _ in range(rng.choice((1, 2, 4)))
    )
    whats: tuple[Literal["cut", "scripts forgotten"], ...] = ("cut", "cut", "cut", "scripts forgotten")
    faults = tuple(NetworkFault(4 * rng.random(), rng.choice(whats)) for _ in range(rng.choice((0, 1, 3, 8))))
    slow = rng.choice((0.0, 0.05, 0.3))
    return WirePlan(seed, slow, tuple(rng.choice(_HANDOFFS) for _ in range(clients)), visits, faults)


class WireWorld:
    """One run of a plan."""

    def __init__(self, loop: VirtualLoop, plan: WirePlan) -> None:
        self.loop = loop
        self.network = Network(plan.seed, plan.slow)
        self._plan = plan
        self._rng = random.Random(f"faults {plan.seed}")
        self._clients = [self._client(handoffs) for handoffs in plan.handoffs]
        self._handles: list[Handle] = []
        self._highest = 0
        loop.after_step = self._look

    def _client(self, handoffs: int | None) -> LockClient:
        server = Server(self.network.open, call_timeout=1.0, stay_awake=False)
        queued = handoffs is not None
        backend = QueueBackend(
            server, local_queue=queued, local_handoffs=handoffs or 0, counter=fence_counter()
        )
        return LockClient(
            LocalQueue(backend, handoffs=handoffs) if handoffs is not None else backend, metrics=False
        )

    def _began(self, handle: Handle) -> None:
        if handle.fence <= self._highest:
            raise Violation(f"fences grow: {handle.fence} after {self._highest}")
        self._highest = handle.fence
        self._handles.append(handle)

    def _look(self) -> None:
        self._handles = [handle for handle in self._handles if handle._holding.state.value == "held"]
        holders = [handle.fence for handle in self._handles if handle.held]
        if len(holders) > 1:
            raise Violation(f"one holder at a time: fences {holders} are held")
        if self.loop.now > START + _LONGEST:
            raise Violation("nobody waits for ever")

    async def run(self) -> None:
        """The program, then the end: nothing may be left."""
        faults = [self.loop.create_task(self._fault(fault)) for fault in self._plan.faults]
        lanes: dict[tuple[int, int], list[WireVisit]] = {}
        for visit in self._plan.visits:
            lanes.setdefault((visit.client, visit.task), []).append(visit)
        tasks = [self.loop.create_task(self._lane(lane)) for lane in lanes.values()]
        for task in [*tasks, *faults]:
            await task
        if self._plan.calm and (left := self.network.server.left_behind()):
            raise Violation(f"a lock that was given back is free at once: {left}")
        for client in self._clients:
            await client.aclose()
        await asyncio.sleep(3 * TTL)  # leases of what could not be given back, and what is late on the wire
        if left := self.network.server.left_behind():
            raise Violation(f"nothing is left on the server: {left}")
        if self.network.connections:
            raise Violation(f"{len(self.network.connections)} connections are left")
        if tasks_left := asyncio.all_tasks(self.loop) - {asyncio.current_task(self.loop)}:
            raise Violation(f"no task is left: {tasks_left}")

    async def _fault(self, fault: NetworkFault) -> None:
        await asyncio.sleep(fault.at)
        if fault.what == "scripts forgotten":
            self.network.server.forget_scripts()
        elif self.network.connections:
            self._rng.choice(self.network.connections).break_off()

    async def _lane(self, visits: list[WireVisit]) -> None:
        for visit in visits:
            await asyncio.sleep(visit.pause)
            task = self.loop.create_task(self._visit(visit))
            await asyncio.wait({task}, timeout=visit.cancel_after)
            cancelled = task.cancel() if visit.cancel_after is not None else False
            await asyncio.wait({task})
            if cancelled and not task.cancelled() and task.exception() is None:
                raise Violation("a cancelled task ends as cancelled")
            if not task.cancelled():
                task.result()

    async def _visit(self, visit: WireVisit) -> None:
        client = self._clients[visit.client]
        try:
            if visit.how == "hold":
                async with client.hold(KEY, ttl=TTL, timeout=visit.timeout) as handle:
                    self._began(handle)
                    await asyncio.sleep(visit.body)
                    overtaken = self._highest != handle.fence
            else:
                overtaken = await self._by_hand(client, visit)
        except LockError as error:
            if isinstance(error, AcquireTimeout) and visit.timeout == _FOR_EVER:
                raise Violation("every waiter is served") from error
            return
        if overtaken:
            raise Violation(f"fence {self._highest} overtook a holder who was told of no loss")

    async def _by_hand(self, client: LockClient, visit: WireVisit) -> bool:
        if visit.how == "try":
            handle = await client.try_acquire(KEY, ttl=TTL)
        else:
            handle = await client.acquire(KEY, ttl=TTL, timeout=visit.timeout)
        if handle is None:
            return False
        self._began(handle)
        try:
            await asyncio.sleep(visit.body)
            overtaken = handle.held and self._highest != handle.fence
        finally:
            with contextlib.suppress(LockError):  # its failure must not take a cancellation
                await handle.release()
        return overtaken


def run(plan: WirePlan) -> tuple[int, str]:
    """How many steps it took, and what it broke; inside `virtual_time`."""
    with fresh_loop(plan.seed) as loop:
        try:
            loop.run_until_complete(WireWorld(loop, plan).run())
        except Violation as violation:
            return loop.steps, str(violation)
        except Stuck as stuck:
            return loop.steps, f"nobody waits for ever: {stuck}"
        return loop.steps, "; ".join(loop.errors)


def shrunk(plan: WirePlan, fails: Callable[[WirePlan], bool]) -> WirePlan:
    """The plan without all that can be left out of it, one by one, while it still fails."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            if fails(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _smaller(plan: WirePlan) -> Iterator[WirePlan]:
    if plan.slow:
        yield replace(plan, slow=0.0)
    for number in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:number] + plan.faults[number + 1 :])
    for number in range(len(plan.visits)):
        yield replace(plan, visits=plan.visits[:number] + plan.visits[number + 1 :])
