"""Small programs on `LocalQueue`, the watchdog and `hold()`, run in every order of their callbacks.

At each step one alternative is chosen: the callback that runs next, or that a task is cancelled now, or that
the clock moves on while everything stands still; and for each request whether it is answered, or lost with
its connection before or after it was carried out.
The first alternative is what an idle machine and network do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from asyncdlock._local_queue import LocalQueue
from asyncdlock.client import LockClient
from asyncdlock.errors import AcquireTimeout, BackendError, LockError
from asyncdlock.handle import Handle
from tests.schedules.loop import START, Stuck, VirtualLoop, fresh_loop
from tests.schedules.paths import Path
from tests.schedules.store import Connection, Store

KEY = "key"
TTL = 1.0
_LONGEST = 60.0
"""Virtual seconds, beside those in which all stood still: beyond every TTL, time-out and retry here."""


class Violation(AssertionError):
    """What the library promises does not hold."""


class World:
    """One run of a program: its processes, their tasks, and what the invariants look at."""

    def __init__(self, loop: VirtualLoop, path: Path) -> None:
        self.loop = loop
        self._path = path
        self.store = Store()
        self.clients: list[LockClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._cancelled: set[asyncio.Task[None]] = set()
        self._handles: list[Handle] = []
        self._stood_still = 0.0
        self.highest = 0
        loop.pick = self._pick
        loop.after_step = self._look

    def client(self) -> LockClient:
        """A process of its own."""
        remote = Connection(self.store, self._path.choose)
        client = LockClient(LocalQueue(remote, handoffs=remote.local_handoffs), metrics=False)
        self.clients.append(client)
        return client

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self.loop.create_task(work)
        self._tasks.append(task)
        return task

    def began(self, handle: Handle) -> None:
        """Somebody holds the lock from here on."""
        if handle.fence <= self.highest:
            raise Violation(f"fences grow: {handle.fence} after {self.highest}")
        self.highest = handle.fence
        self._handles.append(handle)

    def _pick(self, ready: int) -> int:
        while True:
            victims = [task for task in self._tasks if not task.done() and task not in self._cancelled]
            moves = self.loop.next_timer() is not None
            choice = self._path.choose(ready + len(victims) + moves)
            if choice < ready:
                return choice
            if choice < ready + len(victims):
                victim = victims[choice - ready]
                self._cancelled.add(victim)
                victim.cancel()
            else:
                before = self.loop.now
                self.loop.pass_time()
                self._stood_still += self.loop.now - before

    def _look(self) -> None:
        self._handles = [handle for handle in self._handles if handle._holding.state.value == "held"]
        holders = [handle.fence for handle in self._handles if handle.held]
        if len(holders) > 1:
            raise Violation(f"one holder at a time: fences {holders} are held")
        if self.loop.now - self._stood_still > START + _LONGEST:
            raise Violation("nobody waits for ever")

    async def end(self) -> None:
        """Wait for all tasks, close, and see that nothing is left."""
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if task in self._cancelled and not task.cancelled():
                raise Violation("a cancelled task ends as cancelled")
            if not task.cancelled():
                task.result()
        for client in self.clients:
            await client.aclose()
        self._see_that_nothing_is_left()

    def _see_that_nothing_is_left(self) -> None:
        if left := self.store.left_behind():
            raise Violation(f"no lease or waiter is left at the backend: {left}")
        for client in self.clients:
            assert isinstance(client._backend, LocalQueue)
            if client._backend._places:
                raise Violation("no place is left in the local queue")
        if tasks := asyncio.all_tasks(self.loop) - {asyncio.current_task(self.loop)}:
            raise Violation(f"no task is left: {tasks}")
        if self.loop.next_timer() is not None:
            raise Violation(f"no timer is left: {self.loop._scheduled}")


Program = Callable[[World], Awaitable[None]]


async def section(world: World, client: LockClient, *, body: float = 0.0) -> None:
    """Hold the lock for `body` seconds. Whoever is not told of a loss has had no successor by its end."""
    try:
        async with client.hold(KEY, ttl=TTL) as handle:
            world.began(handle)
            await asyncio.sleep(body)
            overtaken = world.highest != handle.fence
    except LockError:  # lost, or the server failed, or the client was closed
        return
    if overtaken:
        raise Violation(f"hold() says nothing of a loss: fence {handle.fence} was overtaken")


async def in_time(world: World, client: LockClient) -> None:
    """Wait for the lock, but not for long."""
    try:
        handle = await client.acquire(KEY, ttl=TTL, timeout=TTL / 4)
    except (AcquireTimeout, BackendError):
        return
    world.began(handle)
    await give_back(handle)


async def at_once(world: World, client: LockClient) -> None:
    """Take the lock if nobody has it."""
    try:
        handle = await client.try_acquire(KEY, ttl=TTL)
    except BackendError:
        return
    if handle is not None:
        world.began(handle)
        await give_back(handle)


async def give_back(handle: Handle) -> None:
    """Release until it is known to be done; once the client closes, that is its own business."""
    for _ in range(3):
        try:
            await handle.release()
        except BackendError:
            continue
        return


async def close(client: LockClient) -> None:
    """End the process, whatever its tasks do."""
    await asyncio.sleep(0)
    await client.aclose()


async def hand_off(world: World) -> None:
    """Three tasks of one process: the lock goes from hand to hand."""
    client = world.client()
    for _ in range(3):
        world.start(section(world, client))


async def two_processes(world: World) -> None:
    """Two tasks of one process, and one of another."""
    one, other = world.client(), world.client()
    for client in (one, other, one):
        world.start(section(world, client))


async def renewal(world: World) -> None:
    """A body that outlasts its TTL, and another process that waits for it."""
    world.start(section(world, world.client(), body=1.5 * TTL))
    world.start(section(world, world.client()))


async def time_out(world: World) -> None:
    """One that waits, but not for as long as the lock is held; with one behind it."""
    client = world.client()
    world.start(section(world, client, body=TTL / 3))
    world.start(in_time(world, client))
    world.start(section(world, client))


async def one_attempt(world: World) -> None:
    """`try_acquire` beside `hold()` and a wait, in one process and in another."""
    one, other = world.client(), world.client()
    world.start(at_once(world, one))
    world.start(section(world, one))
    world.start(at_once(world, other))


async def closing(world: World) -> None:
    """A client that is closed while one of its tasks holds the lock and another waits."""
    client = world.client()
    for _ in range(2):
        world.start(section(world, client, body=TTL / 3))
    world.start(close(client))


PROGRAMS: list[Program] = [hand_off, two_processes, renewal, time_out, one_attempt, closing]


def run(program: Program, path: Path) -> tuple[int, str]:
    """One path of a program, inside `virtual_time`: how many steps it took, and what it broke."""
    with fresh_loop() as loop:
        world = World(loop, path)
        try:
            loop.run_until_complete(_run(program, world))
        except Violation as violation:
            return loop.steps, str(violation)
        except Stuck as stuck:
            return loop.steps, f"nobody waits for ever: {stuck}"
        return loop.steps, "; ".join(loop.errors)


async def _run(program: Program, world: World) -> None:
    await program(world)
    await world.end()


explored: Callable[[Program], Callable[[Path], tuple[int, str]]] = partial(partial, run)
"""What `explore` runs."""
