"""Random programs of every verb, over three clients of one real server; a model of ten lines decides.

No step depends on who is fast: what must be granted is waited for, and what must not be is not granted
however long it takes. Leases are long, and end by a release, by force, with their client; or they are short
and left to lapse. The programs are the same in every run; one that fails is shrunk, and printed with the line
that replays it alone.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asyncdlock
from tests.contract.cases import CASES, Case
from tests.contract.fixtures import PATIENCE, shortest_ttl, until

T = TypeVar("T")

_LONG = 60.0
_BRIEF = 0.01  # for a wait that must not succeed
_CLIENTS = 3
# A vote of Redlock's that was split is taken back in the background; the next attempt may come before that.
# Behind pgbouncer is the postgres of the other case.
_DECIDED = [case for case in CASES if case.name not in ("redlock", "pgbouncer")]


@dataclass
class Model:
    """Who holds the lock, who waits for it, and the highest fence: all that decides what a verb returns."""

    permits: int
    """How many may hold it beside each other; 0: any number, who are readers."""
    holders: dict[str, bool] = field(default_factory=dict)
    """By owner: whether beside others."""
    waiting: bool = False
    highest: int = 0

    def admits(self, beside: bool) -> bool:
        return not self.waiting and self.has_room(beside)

    def has_room(self, beside: bool) -> bool:
        if not beside or not all(self.holders.values()):
            return not self.holders
        return self.permits == 0 or len(self.holders) < self.permits

    def grant(self, handle: asyncdlock.Handle) -> None:
        assert handle.fence > self.highest, "fences grow in the order of grants"
        self.highest = handle.fence
        self.holders[handle.owner] = handle.shared


@dataclass(frozen=True)
class Step:
    """One verb by one client; `pick` chooses among the handles that there are or were."""

    verb: str
    client: int
    pick: int
    beside: bool


VERBS = (
    *("acquire", "try_acquire", "wait") * 3,
    *("release", "renew") * 4,
    *("cancel", "force_release", "raise_fence", "reopen"),
)
STEPS = st.builds(
    Step,
    verb=st.sampled_from(VERBS),
    client=st.integers(0, _CLIENTS - 1),
    pick=st.integers(0, 7),
    beside=st.booleans(),
)


class Program:
    """Runs steps, and compares each result with the model's, then what the server shows with the model."""

    def __init__(self, case: Case, url: str, permits: int) -> None:
        self._open: Callable[[], asyncdlock.LockClient] = lambda: asyncdlock.connect(url, **case.options)
        self._clients = [self._open() for _ in range(_CLIENTS)]
        self._can = self._clients[0].capabilities
        self._short = shortest_ttl(case, self._can)
        self._model = Model(permits)
        self._key = f"program-{uuid.uuid4().hex}"
        self._handles: list[tuple[int, asyncdlock.Handle]] = []
        self._waiter: tuple[Step, asyncio.Task[asyncdlock.Handle]] | None = None

    async def run(self, steps: list[Step]) -> None:
        try:
            for step in steps:
                await getattr(self, f"_{step.verb}")(step)
                await self._settle()
            await self._cancel(None)
            for client, handle in self._handles:
                if handle.owner in self._model.holders:
                    await self._release(Step("release", client, self._handles.index((client, handle)), False))
            await self._settle()
        finally:
            if self._waiter is not None:
                self._waiter[1].cancel()
                await asyncio.gather(self._waiter[1], return_exceptions=True)
            for opened in self._clients:
                await opened.aclose()

    # The verbs

    async def _acquire(self, step: Step) -> None:
        if self._model.admits(self._beside(step)):
            self._granted(step.client, await self._ask(step, PATIENCE))
        else:
            with pytest.raises(asyncdlock.AcquireTimeout):
                await self._ask(step, 0.0 if step.pick % 2 else _BRIEF)

    async def _try_acquire(self, step: Step) -> None:
        await self._hear(step.client)
        handle = await _apart(self._verb("try_acquire", step)(ttl=_LONG))
        assert (handle is not None) == self._model.admits(self._beside(step))
        if handle is not None:
            self._granted(step.client, handle)

    async def _wait(self, step: Step) -> None:
        """Start to wait behind those who hold it, and go on with the program."""
        if self._waiter is None and not self._model.admits(self._beside(step)):
            await self._hear(step.client)
            self._waiter = step, asyncio.create_task(self._ask(step, None))
            self._model.waiting = True

    async def _cancel(self, _: Step | None) -> None:
        if self._waiter is not None:
            _, task = self._waiter
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            self._waiter, self._model.waiting = None, False

    async def _release(self, step: Step) -> None:
        """Of any handle that ever was: again, after it was taken away, after its client was closed."""
        if self._handles:
            _, handle = self._handles[step.pick % len(self._handles)]
            owned = self._model.holders.pop(handle.owner, None) is not None
            assert await handle.release() is owned
            assert not handle.held

    async def _renew(self, step: Step) -> None:
        if self._handles:
            _, handle = self._handles[step.pick % len(self._handles)]
            if handle.owner in self._model.holders:
                await handle.renew()
                handle.check()
            else:
                with pytest.raises(asyncdlock.LockLost):
                    await handle.renew()

    async def _force_release(self, step: Step) -> None:
        assert await self._clients[step.client].force_release(self._key) is bool(self._model.holders)
        self._model.holders.clear()

    async def _raise_fence(self, step: Step) -> None:
        if self._can.fence_floor and not self._model.holders:
            above = self._model.highest + 1000 * step.pick
            await self._clients[step.client].raise_fence(self._key, above=above)
            self._model.highest = above

    async def _reopen(self, step: Step) -> None:
        """Closing gives back what the client holds, and ends its waits."""
        await self._clients[step.client].aclose()
        if self._waiter is not None and self._waiter[0].client == step.client:
            with pytest.raises(asyncdlock.LockError, match="closed"):
                await self._waiter[1]
            self._waiter, self._model.waiting = None, False
        for client, handle in self._handles:
            if client == step.client:
                self._model.holders.pop(handle.owner, None)
        self._clients[step.client] = self._open()

    async def _lapse(self, step: Step) -> None:
        """A lease that nobody renews ends, also with somebody behind it; its handle is good for nothing."""
        if not self._model.admits(self._beside(step)):
            await self._cancel(step)
            await self._force_release(step)
        handle = await self._ask(step, PATIENCE, ttl=self._short, renew=False)
        self._granted(step.client, handle)
        if step.pick % 2:
            await self._wait(Step("wait", (step.client + 1) % _CLIENTS, 0, beside=False))
        assert await handle.wait_lost() is True
        del self._model.holders[handle.owner]

    # What they share

    def _beside(self, step: Step) -> bool:
        return step.beside and (self._can.semaphore if self._model.permits else self._can.shared)

    def _verb(self, name: str, step: Step) -> Callable[..., Coroutine[Any, Any, Any]]:
        client = self._clients[step.client]
        beside = self._beside(step)
        if beside and self._model.permits:
            return partial(getattr(client.semaphore(self._key, permits=self._model.permits), name))
        return partial(getattr(client, name), self._key, shared=beside)

    async def _ask(
        self, step: Step, timeout: float | None, *, ttl: float = _LONG, renew: bool = True
    ) -> asyncdlock.Handle:
        await self._hear(step.client)
        handle: asyncdlock.Handle = await _apart(
            self._verb("acquire", step)(ttl=ttl, timeout=timeout, renew=renew)
        )
        return handle

    async def _hear(self, client: int) -> None:
        """Who lost its lock by force is told at its next renewal; until then its client takes it for held."""
        for holder, handle in self._handles:
            if holder == client and handle.held and handle.owner not in self._model.holders:
                with pytest.raises(asyncdlock.LockLost):
                    await handle.renew()

    def _granted(self, client: int, handle: asyncdlock.Handle) -> None:
        if handle.ttl == _LONG:
            handle.check()
        self._model.grant(handle)
        self._handles.append((client, handle))

    async def _settle(self) -> None:
        """Whoever waits is granted the lock if there is room; then the server shows what the model says."""
        if self._waiter is not None and self._model.has_room(self._beside(self._waiter[0])):
            step, task = self._waiter
            await self._hear(step.client)
            self._waiter, self._model.waiting = None, False
            self._granted(step.client, await asyncio.wait_for(task, PATIENCE))
        await until(self._server_agrees)
        assert self._waiter is None or not self._waiter[1].done(), "granted, though there was no room"

    async def _server_agrees(self) -> bool:
        """Asked through clients that know it best: what is passed on in a process, others see later."""
        model = self._model
        holding = [client for client, handle in self._handles if handle.owner in model.holders]
        info = await self._clients[holding[-1] if holding else 0].inspect(self._key)
        owners = {info.owner, *(one.owner for one in info.beside)} if info.held else set()
        if self._can.fifo:
            if self._waiter is not None:
                info = await self._clients[self._waiter[0].client].inspect(self._key)
            return owners == set(model.holders) and len(info.waiters) == model.waiting
        return owners == set(model.holders)


async def _apart(verb: Coroutine[Any, Any, T]) -> T:
    """In a task of its own: one that holds a key beside others is refused the key for itself."""
    task = asyncio.create_task(verb)
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


def _run(program: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(program())


_BOUNDED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # of these, only names of servers
)
_PERMITS = st.sampled_from([0, 2])
_SHRINKING = pytest.mark.timeout(900)  # hypothesis itself stops to look for a smaller one after five minutes


@_SHRINKING
@pytest.mark.parametrize("case", _DECIDED, ids=str, indirect=True)
@settings(_BOUNDED, max_examples=60)
@given(steps=st.lists(STEPS, min_size=10, max_size=25), permits=_PERMITS)
def test_every_verb_returns_what_the_model_says(
    case: Case, url: str, steps: list[Step], permits: int
) -> None:
    async def program() -> None:
        await Program(case, url, permits).run(steps)

    _run(program)


@_SHRINKING
@pytest.mark.parametrize("case", _DECIDED, ids=str, indirect=True)
@settings(_BOUNDED, max_examples=4)
@given(
    before=st.lists(STEPS, max_size=8),
    lapse=st.builds(
        Step,
        verb=st.just("lapse"),
        client=st.integers(0, _CLIENTS - 1),
        pick=st.integers(0, 1),
        beside=st.booleans(),
    ),
    after=st.lists(STEPS, min_size=4, max_size=8),
    permits=_PERMITS,
)
def test_so_it_does_before_and_after_a_lease_lapses(
    case: Case, url: str, before: list[Step], lapse: Step, after: list[Step], permits: int
) -> None:
    async def program() -> None:
        await Program(case, url, permits).run([*before, lapse, *after])

    _run(program)
