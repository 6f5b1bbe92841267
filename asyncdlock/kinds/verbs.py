"""The verbs of `LockClient` beyond the plain lock."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from asyncdlock.handle import Handle
from asyncdlock.kinds.leader import Terms
from asyncdlock.kinds.locked import locked
from asyncdlock.kinds.observer import Leaders
from asyncdlock.kinds.once import Tick, Ticks, begin, check_can, seconds_of
from asyncdlock.kinds.semaphore import Semaphore
from asyncdlock.kinds.several import hold_all, in_order
from asyncdlock.kinds.shared import unavailable

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

P = ParamSpec("P")
R = TypeVar("R")


class Kinds:
    """Most build on `acquire`, `hold` and `raise_fence` alone."""

    def semaphore(self, key: str, *, permits: int) -> Semaphore:
        """At most `permits` holders of `key` at a time: an object with `acquire`, `try_acquire` and `hold`.

        :raises InvalidKey, ValueError: the key or the number cannot be used.
        :raises LockError: the backend has no semaphores.
        """
        client = _client(self)
        if not client.capabilities.semaphore:
            raise unavailable(client, "semaphores")
        return Semaphore(client, key, permits)

    def hold_all(
        self,
        keys: Iterable[str],
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        max_hold: float | None = None,
    ) -> AbstractAsyncContextManager[Mapping[str, Handle]]:
        """`async with client.hold_all([a, b]) as handles:` runs the body while all locks are held.

        They are taken in the order of their names, each once, within one `timeout`, and given back together:
        users of `hold_all` never wait for each other in a circle. `handles` has the handle of each key. When
        any lease is lost the body is cancelled and `LockLost` names the key; a failed or cancelled wait
        leaves no lock behind.

        :raises AcquireTimeout: they were not all granted within `timeout` seconds; `key` is the one missing.
        :raises LockLost: a lease was lost while the body ran, or while another lock was waited for.
        :raises ValueError: there is no key, or the backend cannot do this `ttl`.
        :raises InvalidKey, QueueFull, BackendError: as `acquire` does.
        """
        return hold_all(_client(self), in_order(keys), ttl=ttl, timeout=timeout, max_hold=max_hold)

    def lead(self, key: str, *, ttl: float = 10.0, max_hold: float | None = None) -> Terms:
        """`async for term in client.lead(key): async with term:` runs the body whenever this process leads.

        The iteration waits to be elected. If a term is lost, its body is cancelled and the next campaign
        begins. A body that ends resigns, and the next campaign begins as well; `break` inside the block
        resigns for good. If servers cannot be reached, it waits for them.

        :raises InvalidKey, ValueError, QueueFull, BackendError, LockError: as `acquire` does, when iterated.
        """
        return Terms(_client(self), key, ttl=ttl, max_hold=max_hold)

    def observe(self, key: str, *, every: float = 1.0) -> Leaders:
        """`async for leader in client.observe(key)` says who leads, at once and whenever that changes.

        `None`: nobody leads. The server is asked every `every` seconds, so a leader that was followed by
        another within that time may be missed; the present one never is. If servers cannot be reached, it
        waits for them. The iteration ends when the client is closed.

        :raises ValueError: `every` is not a positive number of seconds.
        :raises LockError: when iterated: this backend cannot tell (`capabilities.inspection`).
        :raises InvalidKey, BackendError: when iterated, as `inspect` does.
        """
        return Leaders(_client(self), key, every=every)

    def once(
        self, job: str, *, every: float | str, ttl: float = 10.0, max_hold: float | None = None
    ) -> Ticks:
        """`async for tick in client.once(job, every="1h"): async with tick:` runs a job once a tick.

        Of all replicas that iterate, exactly one gets each tick, even if their clocks differ; the others go
        on to the next one. Ticks are the multiples of `every` since 1970 in UTC that come due during the
        iteration. `tick.missed` says how many before it were begun by nobody.

        :raises ValueError: `every` is not a duration ("500ms", "1d", a number of seconds) of 0.1 s or more.
        :raises LockError: this backend cannot remember a tick (see `capabilities.once`).
        """
        return Ticks(_client(self), job, every=every, ttl=ttl, max_hold=max_hold)

    async def once_per(
        self,
        job: str,
        tick: datetime | float,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        max_hold: float | None = None,
    ) -> Tick | None:
        """A tick, for callers with a scheduler of their own; `None` when it or a later one was begun before.

        `tick` is the time that stands for the tick, the same for all replicas. Use `async with` on the
        result.

        :raises AcquireTimeout: an earlier tick is still running after `timeout` seconds.
        :raises ValueError: the tick is not a time, or has no time zone.
        :raises LockError: this backend cannot remember a tick (see `capabilities.once`).
        :raises InvalidKey, QueueFull, BackendError: as `acquire` does.
        """
        client = _client(self)
        check_can(client)
        return await begin(client, job, seconds_of(tick), ttl=ttl, timeout=timeout, max_hold=max_hold)

    def locked(
        self, key: str, *, ttl: float = 10.0, timeout: float | None = None, max_hold: float | None = None
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """`@client.locked("account:{account_id}")` runs an `async def` function as the body of `hold()`.

        Names in braces are parameters of the function, filled from each call. A function with a keyword-only
        parameter `handle` gets the handle there, and with it the fence.

        :raises ValueError: when decorating: the key names something that is not a parameter.
        :raises TypeError: when decorating: the function was not made with `async def`.
        """
        return locked(_client(self), key, ttl=ttl, timeout=timeout, max_hold=max_hold)


def _client(kinds: Kinds) -> "LockClient":
    """The class that these verbs are a part of."""
    return cast("LockClient", kinds)
