"""The same locks for plain threads, Django and Celery: a client with an event loop in a thread of its own.

    locks = asyncdlock.blocking.connect("redis://127.0.0.1:6379/0")
    with locks.hold("account:42", timeout=5.0) as handle:
        store.put("account:42", body, fence=handle.fence)

A thread cannot be cancelled. When a lease is lost the body goes on; `handle.check()` raises, and so does the
exit.
"""

import asyncio
import functools
import inspect
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import asyncdlock.client
import asyncdlock.handle
from asyncdlock import _process
from asyncdlock._hold import give_back
from asyncdlock._holding import HELD
from asyncdlock._loop_thread import LoopThread
from asyncdlock.errors import LockError
from asyncdlock.kinds.locked import HANDLE, KeyTemplate
from asyncdlock.types import Capabilities

__all__ = ["Handle", "LockClient", "connect"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_CLOSE_AT_EXIT_WITHIN = 5.0  # seconds

_inherited: list[object] = []
"""Of the parent, in a forked child. Never collected: to close its event loop would reach into the parent."""


def connect(url: str, **options: Any) -> "LockClient":
    """A client for plain threads; nothing is sent, and no thread started, before its first use.

    The options are those of `asyncdlock.connect`. All threads of a process may use the client at the same
    time, and a forked child as well: there it starts anew, with connections of its own.

    :raises ValueError, ImportError: as `asyncdlock.connect`.
    """
    return LockClient(functools.partial(asyncdlock.client.connect, url, **options))


class _Inside:
    """The asyncio client of a blocking one and the thread that it lives in; new ones in a forked child."""

    def __init__(self, open_client: Callable[[], asyncdlock.client.LockClient]) -> None:
        self._open_client = open_client
        self._begin()
        _process.disown_in_child(self)

    def _begin(self) -> None:
        self.client = self._open_client()
        self._thread = LoopThread()
        # Also when the interpreter exits, and then before the thread's own, which was made before it.
        self._finish = weakref.finalize(self, _close, self._thread, self.client)

    def call(self, coroutine: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> T:
        """Wait for `coroutine`.

        :raises LockError: the client is closed.
        """
        if not self._finish.alive:
            coroutine.close()
            raise LockError("this client is closed; connect() again")
        return self._thread.call(coroutine, undo)

    def close(self) -> None:
        if self._finish.alive and self._thread.started:
            with suppress(LockError):  # another thread was faster
                self._thread.call(self.client.aclose())
        self._finish()

    def disown(self) -> None:
        """This process was forked from the one that used it: start anew."""
        _inherited.append((self._thread, self.client))
        if self._finish.detach() is not None:
            self._begin()


class LockClient:
    """Locks on one server or cluster, for all threads of a process."""

    def __init__(self, open_client: Callable[[], asyncdlock.client.LockClient]) -> None:
        self._inside = _Inside(open_client)

    @property
    def capabilities(self) -> Capabilities:
        return self._inside.client.capabilities

    def acquire(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
    ) -> "Handle":
        """Wait for the lock and return a handle that holds it.

        With `renew` the lease is extended in the background, however long this thread is busy, until it is
        released or lost, or until `max_hold` seconds have passed. A wait that times out or is interrupted
        leaves nothing behind.

        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError, LockError: as in asyncio.
        """
        taking = self._inside.client.acquire(key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold)
        return Handle(self._inside, self._inside.call(taking, _take_back))

    def try_acquire(
        self, key: str, *, ttl: float = 10.0, renew: bool = True, max_hold: float | None = None
    ) -> "Handle | None":
        """One attempt that never waits for another holder; `None` when there is one.

        :raises InvalidKey, ValueError, BackendError, LockError: as `acquire` does.
        """
        trying = self._inside.client.try_acquire(key, ttl=ttl, renew=renew, max_hold=max_hold)
        taken = self._inside.call(trying, _take_back)
        return None if taken is None else Handle(self._inside, taken)

    @contextmanager
    def hold(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
    ) -> "Iterator[Handle]":
        """`with client.hold(key) as handle:` runs the body while the lock is held.

        :raises LockLost: on the way out: the lease was lost while the body ran.
        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError, LockError: as `acquire` does.
        """
        handle = self.acquire(key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold)
        try:
            yield handle
        except BaseException:
            self._inside.call(give_back(handle._handle))
            raise
        if not self._inside.call(give_back(handle._handle)):
            raise handle._handle._holding.lost_error()

    def locked(
        self, key: str, *, ttl: float = 10.0, timeout: float | None = None, max_hold: float | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """`@client.locked("account:{account_id}")`, as in asyncio, for plain functions.

        :raises ValueError: when it decorates: the key names what is no parameter.
        :raises TypeError: when it decorates: the function was made with `async def`.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} was made with `async def`: decorate it with an asyncio client")
            keys = KeyTemplate(key, function)

            @functools.wraps(function)
            def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.hold(keys.key(args, kwargs), ttl=ttl, timeout=timeout, max_hold=max_hold) as handle:
                    if keys.wants_handle:
                        kwargs[HANDLE] = handle
                    return function(*args, **kwargs)

            return under_lock

        return decorate

    def raise_fence(self, key: str, *, above: int) -> None:
        """Make every later fence of `key` larger than `above`.

        :raises LockError, BackendError: as in asyncio.
        """
        self._inside.call(self._inside.client.raise_fence(key, above=above))

    def close(self) -> None:
        """Give back what is held, close connections, end the thread. Whoever waits gets a `LockError`.

        Left out, it happens when the interpreter exits.
        """
        self._inside.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Handle:
    """A lock that was granted to a thread. Attach `fence` to every write that the lock protects.

    Any thread may use it. `held`, `remaining` and `check` look at the local clock only, as in asyncio.
    """

    __slots__ = ("_handle", "_inside")

    def __init__(self, inside: "_Inside", handle: asyncdlock.handle.Handle) -> None:
        self._inside = inside
        self._handle = handle

    @property
    def key(self) -> str:
        return self._handle.key

    @property
    def owner(self) -> str:
        """A fresh UUID for every attempt."""
        return self._handle.owner

    @property
    def fence(self) -> int:
        """The fencing token: larger than that of every earlier grant of this key."""
        return self._handle.fence

    @property
    def ttl(self) -> float:
        return self._handle.ttl

    @property
    def acquired_at(self) -> float:
        """Wall clock, seconds since the epoch: for display."""
        return self._handle.acquired_at

    @property
    def expires_at(self) -> float:
        """When the lease ends unless it is renewed, in `time.monotonic()` seconds."""
        return self._handle.expires_at

    @property
    def held(self) -> bool:
        """Whether the lease can still be relied on, by the local clock."""
        return self._handle.held

    def remaining(self) -> float:
        """Seconds for which the lease can still be relied on; 0.0 when it cannot."""
        return self._handle.remaining()

    def check(self) -> None:
        """Do nothing while the lease can be relied on: call it between the steps of a long body.

        :raises LockLost: the lease is lost, has run out, or was released.
        """
        holding = self._handle._holding
        if holding.held:
            return
        if holding.state is HELD:  # by the clock alone: its end is told where it is looked after
            self._inside.call(_check(self._handle))
        raise holding.lost_error()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Return `True` when the lease is lost, and `False` when the lock was released first.

        :raises TimeoutError: neither happened within `timeout` seconds.
        """
        return self._inside.call(_wait_lost(self._handle, timeout))

    def renew(self) -> None:
        """Extend the lease by its TTL, from now.

        :raises LockLost, BackendError, LockError: as in asyncio.
        """
        self._inside.call(self._handle.renew())

    def release(self) -> bool:
        """Give the lock back. `True` when it was still owned. Safe to call twice and again after an error.

        :raises BackendError: the server failed; the lock ends with its TTL unless this is retried.
        :raises LockError: the client is closed, or belongs to another process.
        """
        return self._inside.call(self._handle.release())

    def __repr__(self) -> str:
        return repr(self._handle)


async def _check(handle: asyncdlock.handle.Handle) -> None:
    handle.check()


async def _wait_lost(handle: asyncdlock.handle.Handle, timeout: float | None) -> bool:
    async with asyncio.timeout(timeout):
        return await handle.wait_lost()


_taking_back: set[asyncio.Task[bool]] = set()


def _take_back(handle: asyncdlock.handle.Handle | None) -> None:
    """Nobody waits for this grant any longer. Called in the client's loop."""
    if handle is not None:
        task = asyncio.get_running_loop().create_task(give_back(handle))
        _taking_back.add(task)
        task.add_done_callback(_taking_back.discard)


def _close(thread: LoopThread, client: asyncdlock.client.LockClient) -> None:
    if not thread.started:
        return
    closing = thread.submit(client.aclose())
    if thread.is_current:  # the garbage collector may call from anywhere
        closing.add_done_callback(lambda _: thread.stop())
        return
    with suppress(Exception):  # what was not given back by now ends with its lease
        closing.result(_CLOSE_AT_EXIT_WITHIN)
    thread.stop()
