"""The same locks for plain threads, Django and Celery: a client with an event loop in a thread of its own.

    locks = asyncdlock.blocking.connect("redis://127.0.0.1:6379/0")
    with locks.hold("account:42", timeout=5.0) as handle:
        store.put("account:42", body, fence=handle.fence)

A thread cannot be cancelled. When a lease is lost the body goes on; `handle.check()` raises, and so does
leaving the block.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import asyncdlock._connect
import asyncdlock.client
from asyncdlock._blocking_handle import BlockingHandle, body_under, take, take_all
from asyncdlock._threaded_client import ThreadedClient, listed
from asyncdlock.kinds.locked import HANDLE, KeyTemplate
from asyncdlock.kinds.semaphore import Semaphore
from asyncdlock.kinds.several import acquire_all, in_order
from asyncdlock.types import Capabilities, LockInfo

__all__ = ["BlockingClient", "BlockingHandle", "BlockingSemaphore", "connect"]

P = ParamSpec("P")
R = TypeVar("R")


def connect(url: str = "", **options: Any) -> "BlockingClient":
    """A client for plain threads; nothing is sent, and no thread started, before its first use.

    The options are those of `asyncdlock.connect`, `redis=client` among them. All threads of a process may use
    the client at the same time, and a forked child as well: there it starts anew, with its own connections.

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
        shared: bool = False,
        label: str | None = None,
    ) -> BlockingHandle:
        """Wait for the lock and return a handle that holds it.

        With `renew` the lease is extended in the background, however long this thread is busy, until it is
        released or lost, or until `max_hold` seconds have passed. `shared` and `label` are as in asyncio.
        A wait that times out or is interrupted leaves nothing behind.

        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError, LockError: as in asyncio.
        """
        if not shared:
            self._inside.upgrades.refuse(key)
        asking = self._inside.client.acquire(
            key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, shared=shared, label=label
        )
        return take(self._inside, asking)

    def try_acquire(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        renew: bool = True,
        max_hold: float | None = None,
        shared: bool = False,
        label: str | None = None,
    ) -> BlockingHandle | None:
        """One attempt that never waits for another holder; `None` when there is one.

        :raises InvalidKey, ValueError, BackendError, LockError: as `acquire` does.
        """
        if not shared:
            self._inside.upgrades.refuse(key)
        asking = self._inside.client.try_acquire(
            key, ttl=ttl, renew=renew, max_hold=max_hold, shared=shared, label=label
        )
        return take(self._inside, asking)

    @contextmanager
    def hold(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        shared: bool = False,
        label: str | None = None,
    ) -> Iterator[BlockingHandle]:
        """`with client.hold(key) as handle:` runs the body while the lock is held.

        :raises LockLost: on the way out: the lease was lost while the body ran.
        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError, LockError: as `acquire` does.
        """
        with body_under(self._inside) as held:
            held[key] = self.acquire(
                key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, shared=shared, label=label
            )
            yield held[key]

    @contextmanager
    def hold_all(
        self,
        keys: Iterable[str],
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        max_hold: float | None = None,
    ) -> Iterator[Mapping[str, BlockingHandle]]:
        """`with client.hold_all([a, b]) as handles:` runs the body while all locks are held.

        They are taken in the order of their names, within one `timeout`, and given back together, as in
        asyncio. If one is lost while another is waited for, that is reported when the wait ends.

        :raises AcquireTimeout: they were not all granted within `timeout` seconds; `key` is the one missing.
        :raises LockLost: a lease was lost before or while the body ran.
        :raises InvalidKey, ValueError, QueueFull, BackendError, LockError: as `acquire` does.
        """
        inside = self._inside
        for key in (ordered := in_order(keys)):
            inside.upgrades.refuse(key)
        asking = acquire_all(inside.client, ordered, ttl=ttl, timeout=timeout, max_hold=max_hold)
        with body_under(inside) as held:
            held |= take_all(inside, asking)
            yield dict(held)

    def semaphore(self, key: str, *, permits: int) -> "BlockingSemaphore":
        """At most `permits` holders of `key` at a time: an object with `acquire`, `try_acquire` and `hold`.

        :raises InvalidKey, ValueError: the key or the number cannot be used.
        :raises LockError: the backend has no semaphores.
        """
        self._inside.client.semaphore(key, permits=permits)
        return BlockingSemaphore(self._inside, key, permits)

    def locked(
        self, key: str, *, ttl: float = 10.0, timeout: float | None = None, max_hold: float | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """`@client.locked("account:{account_id}")`, as in asyncio, for plain functions.

        :raises ValueError: when decorating: the key names something that is not a parameter.
        :raises TypeError: when decorating: the function was made with `async def`.
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

    def inspect(self, key: str) -> LockInfo:
        """Who holds the lock, since when and for how long, and who waits for it, in order.

        :raises InvalidKey, BackendError, LockError: as in asyncio.
        """
        return self._inside.call(self._inside.client.inspect(key))

    def keys(self) -> list[str]:
        """The keys of all locks that are held or waited for, in any order.

        :raises BackendError, LockError: as in asyncio.
        """
        return self._inside.call(listed(self._inside.client.keys()))

    def force_release(self, key: str) -> bool:
        """Take the lock away from its holder; the next fence is above all that were ever granted.

        :raises InvalidKey, BackendError, LockError: as in asyncio.
        """
        return self._inside.call(self._inside.client.force_release(key))

    def close(self) -> None:
        """Give back what is held, close connections, end the thread. Threads that wait get a `LockError`.

        If you do not call it, it happens when the interpreter exits.
        """
        self._inside.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingSemaphore:
    """What `BlockingClient.semaphore` returns: `acquire`, `try_acquire` and `hold`, each for one permit."""

    __slots__ = ("_inside", "key", "permits")

    key: str
    permits: int

    def __init__(self, inside: ThreadedClient, key: str, permits: int) -> None:
        self._inside = inside
        self.key = key
        self.permits = permits

    @property
    def _semaphore(self) -> Semaphore:
        # Of the client that lives now: a forked child has one of its own.
        return self._inside.client.semaphore(self.key, permits=self.permits)

    def acquire(
        self,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
    ) -> BlockingHandle:
        """Wait for a permit.

        :raises AcquireTimeout, ValueError, QueueFull, BackendError, LockError: as in asyncio.
        """
        asking = self._semaphore.acquire(
            ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, label=label
        )
        return take(self._inside, asking)

    def try_acquire(
        self,
        *,
        ttl: float = 10.0,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
    ) -> BlockingHandle | None:
        """One attempt that never waits; `None` when all permits are held, or others wait for one.

        :raises ValueError, BackendError, LockError: as in asyncio.
        """
        asking = self._semaphore.try_acquire(ttl=ttl, renew=renew, max_hold=max_hold, label=label)
        return take(self._inside, asking)

    @contextmanager
    def hold(
        self,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
    ) -> Iterator[BlockingHandle]:
        """`with semaphore.hold() as handle:` runs the body while a permit is held.

        :raises LockLost: on the way out: the permit's lease was lost while the body ran.
        :raises AcquireTimeout, ValueError, QueueFull, BackendError, LockError: as in asyncio.
        """
        with body_under(self._inside) as held:
            held[self.key] = self.acquire(
                ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, label=label
            )
            yield held[self.key]
