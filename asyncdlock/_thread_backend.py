"""renew_in="thread": the backend and the renewals of a client live in a thread with an event loop of its own.

A body that blocks the client's event loop keeps its lease: connections, sessions, the local queue and the
watchdog belong to the other loop and go on. Only two things cross over: calls of the verbs, and the end of a
lease. A renewal moves the deadline of a holding in place; it is one number, which the dead man's switch
looks at.
"""

import asyncio
import concurrent.futures
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, cast

from asyncdlock._holding import RAN_OUT
from asyncdlock._local_queue import LocalQueue
from asyncdlock._loop_thread import LoopThread
from asyncdlock._watchdog import Watchdog
from asyncdlock.backend import Backend, Inspectable
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, LockInfo

if TYPE_CHECKING:
    from asyncdlock._holding import Holding, State
    from asyncdlock.metrics import Metrics


_LONGEST_BLOCKED = 600.0  # seconds: a loop that is blocked for ever shall not be renewed for ever


def place(backend: Backend, renew_in: str, max_hold: float | None) -> tuple[Backend, float | None]:
    """The backend, in the place where it is to live, and the `max_hold` that goes with it.

    :raises ValueError: there is no such place.
    """
    if renew_in == "loop":
        return backend, max_hold
    if renew_in != "thread":
        raise ValueError(f"renew_in must be 'loop' or 'thread', not {renew_in!r}")
    if backend.name == "memory":
        raise ValueError("memory:// lives in the event loop that uses it: it cannot renew in a thread")
    return ThreadBackend(backend), _LONGEST_BLOCKED if max_hold is None else max_hold


class ThreadBackend:
    """A Backend whose verbs run in a thread, on the Backend inside."""

    def __init__(self, backend: Backend) -> None:
        self.inner = backend
        self.thread: LoopThread = LoopThread()
        self.name: str = backend.name
        self.local_queue: bool = backend.local_queue
        self.local_handoffs: int = backend.local_handoffs
        self._leaving: dict[str, concurrent.futures.Future[bool]] = {}
        """Releases that were cancelled, by owner."""

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def commands(self) -> int:
        return self.inner.commands

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        return await self.thread.run(self.inner.acquire(claim, reserve=reserve))

    async def try_acquire(self, claim: Claim) -> Grant | None:
        return await self.thread.run(self.inner.try_acquire(claim))

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return await self.thread.run(self.inner.renew(grants))

    async def release(self, claim: Claim) -> bool:
        """As the protocol says; one that was cancelled goes on, and whoever asks again gets its answer.

        Not a second one: the first may have handed the lock on to the next waiter of this process.
        """
        leaving = self._leaving.pop(claim.owner, None)
        if leaving is None:
            leaving = self.thread.submit(self.inner.release(claim))
        answer = asyncio.wrap_future(leaving)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._leaving[claim.owner] = leaving
            # What it fails with is for whoever asks again: asyncio shall not miss a reader here.
            answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
            raise

    async def raise_fence(self, key: str, above: int) -> None:
        await self.thread.run(self.inner.raise_fence(key, above))

    # Inspection

    @property
    def label(self) -> str:
        return self._inspectable.label

    @label.setter
    def label(self, label: str) -> None:
        self._inspectable.label = label

    @property
    def _inspectable(self) -> Inspectable:
        return cast(Inspectable, self.inner)

    async def inspect(self, key: str) -> LockInfo:
        return await self.thread.run(self._inspectable.inspect(key))

    async def force_release(self, key: str, above: int) -> bool:
        return await self.thread.run(self._inspectable.force_release(key, above))

    async def keys(self, start: str) -> AsyncIterator[str]:
        async def every() -> list[str]:
            return [name async for name in self._inspectable.keys(start)]

        for name in await self.thread.run(every()):
            yield name

    async def aclose(self) -> None:
        if self.thread.started:
            await self.thread.run(self.inner.aclose())
            self.thread.stop()


class _Lease:
    """As much of a Holding as a watchdog touches, for one in another thread."""

    __slots__ = ("_holding", "_loop", "_queue", "bucket", "grant")

    def __init__(self, holding: "Holding", loop: asyncio.AbstractEventLoop, queue: LocalQueue | None) -> None:
        self._holding = holding
        self._loop = loop
        self._queue = queue
        self.grant = holding.grant
        self.bucket: set[_Lease] | None = None

    @property
    def key(self) -> str:
        return self._holding.key

    @property
    def state(self) -> "State":
        return self._holding.state

    @property
    def renew_until(self) -> float:
        return self._holding.renew_until

    @property
    def expires_at(self) -> float:
        return self._holding.expires_at

    def extend(self, expires_at: float) -> None:
        if not self._holding.move_deadline(expires_at):
            self.lose(RAN_OUT)

    def lose(self, reason: str) -> None:
        # At once for whoever looks at the clock, though its loop may be blocked; the rest when it runs again.
        self._holding.expires_at = min(self._holding.expires_at, time.monotonic())
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._holding.lose, reason)
        if self._queue is not None:
            self._queue.lapsed(self.grant.claim)


class ThreadWatchdog:
    """Stands in the client's loop for a Watchdog in the backend's."""

    def __init__(self, backend: ThreadBackend, metrics: "Metrics") -> None:
        self._thread = backend.thread
        self._queue = backend.inner if isinstance(backend.inner, LocalQueue) else None
        self._watchdog = Watchdog(backend.inner, metrics)
        self._held: set[Holding] = set()
        self._new: deque[tuple[_Lease, float]] = deque()
        self._told = False
        """Whether the thread is about to take in what is new."""

    @property
    def max_loop_lag(self) -> float:
        return self._watchdog.max_loop_lag

    def renew_through(self, wrapper: Callable[[Backend], Backend]) -> None:
        self._watchdog.renew_through(wrapper)

    def watch(self, holding: "Holding", now: float) -> None:
        self._held.add(holding)
        holding.bucket = self._held
        loop = holding.core.callers.loop
        assert loop is not None, "it was acquired there"
        self._new.append((_Lease(holding, loop, self._queue), now))
        if not self._told:
            self._told = True
            self._thread.post(self._take_in)

    def _take_in(self) -> None:
        self._told = False  # before it looks: what is added from now on is told again
        while self._new:
            lease, now = self._new.popleft()
            self._watchdog.watch(cast("Holding", lease), now)

    def watched(self) -> "list[Holding]":
        return list(self._held)

    async def aclose(self) -> None:
        if self._thread.started:
            await self._thread.run(self._watchdog.aclose())
