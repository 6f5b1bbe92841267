"""The same locks for plain threads, Django and Celery: a client with an event loop in a thread of its own.

    locks = asyncdlock.blocking.connect("redis://127.0.0.1:6379/0")
    with locks.hold("account:42", timeout=5.0) as handle:
        store.put("account:42", body, fence=handle.fence)

A thread cannot be cancelled. When a lease is lost the body goes on; `handle.check()` raises, and so does the
exit.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import asyncdlock._connect
import asyncdlock.client
import asyncdlock.handle
from asyncdlock._hold import give_back
from asyncdlock._holding import HELD
from asyncdlock._threaded_client import ThreadedClient, check, take_back, wait_lost
from asyncdlock.kinds.locked import HANDLE, KeyTemplate
from asyncdlock.types import Capabilities

__all__ = ["BlockingClient", "BlockingHandle", "connect"]

P = ParamSpec("P")
R = TypeVar("R")


def connect(url: str, **options: Any) -> "BlockingClient":
    """A client for plain threads; nothing is sent, and no thread started, before its first use.

    The options are those of `asyncdlock.connect`. All threads of a process may use the client at the same
    time, and a forked child as well: there it starts anew, with connections of its own.

    :raises ValueError, ImportError: as `asyncdlock.connect`.
    """
    return BlockingClient(functools.partial(asyncdlock._connect.connect, url, **options))


class BlockingClient:
    """Locks on one server or cluster, for all threads of a process."""

    def __init__(self, open_client: Callable[[], asyncdlock.client.LockClient]) -> None:
        self._inside = ThreadedClient(open_client)

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do: waiting in order, sharing, its shortest TTL."""
        return self._inside.client.capabilities

    def acquire(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
    ) -> "BlockingHandle":
        """Wait for the lock and return a handle that holds it.

        With `renew` the lease is extended in the background, however long this thread is busy, until it is
        released or lost, or until `max_hold` seconds have passed. A wait that times out or is interrupted
        leaves nothing behind.

        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError, LockError: as in asyncio.
        """
        taking = self._inside.client.acquire(key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold)
        taken = self._take(taking)
        assert taken is not None, "acquire waits until there is one"
        return taken

    def try_acquire(
        self, key: str, *, ttl: float = 10.0, renew: bool = True, max_hold: float | None = None
    ) -> "BlockingHandle | None":
        """One attempt that never waits for another holder; `None` when there is one.

        :raises InvalidKey, ValueError, BackendError, LockError: as `acquire` does.
        """
        trying = self._inside.client.try_acquire(key, ttl=ttl, renew=renew, max_hold=max_hold)
        return self._take(trying)

    def _take(self, asking: Coroutine[Any, Any, asyncdlock.handle.Handle | None]) -> "BlockingHandle | None":
        taken = None
        try:
            taken = self._inside.call(asking, take_back)
            return None if taken is None else BlockingHandle(self._inside, taken)
        except BaseException:
            self._inside.give_up(taken)  # interrupted in the last moment
            raise

    @contextmanager
    def hold(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
    ) -> "Iterator[BlockingHandle]":
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


class BlockingHandle:
    """A lock that was granted to a thread. Attach `fence` to every write that the lock protects.

    Any thread may use it. `held`, `remaining` and `check` look at the local clock only, as in asyncio.
    """

    __slots__ = ("_handle", "_inside")

    def __init__(self, inside: ThreadedClient, handle: asyncdlock.handle.Handle) -> None:
        self._inside = inside
        self._handle = handle

    @property
    def key(self) -> str:
        """As it was asked for, without the client's prefix."""
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
        """How long the lease lasts without a renewal, in seconds."""
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
            self._inside.call(check(self._handle))
        raise holding.lost_error()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Return `True` when the lease is lost, and `False` when the lock was released first.

        :raises TimeoutError: neither happened within `timeout` seconds.
        """
        return self._inside.call(wait_lost(self._handle, timeout))

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
