"""LockClient: acquire, try_acquire, hold. The path of one acquire starts here."""

import asyncio
import math
import time
from functools import partial
from types import TracebackType
from typing import Self, cast

from prometheus_client import CollectorRegistry

from asyncdlock._arguments import (
    check_key,
    check_label,
    check_max_hold,
    check_on_lost,
    check_prefix,
    check_timeout,
    check_ttl,
)
from asyncdlock._core import Core, OnLost
from asyncdlock._grants import Grants, Verb
from asyncdlock._hold import Hold
from asyncdlock._holding import Holding, caller
from asyncdlock._operating import Operating, default_label
from asyncdlock.backend import Backend, Inspectable
from asyncdlock.handle import Handle
from asyncdlock.kinds.shared import Upgrades, readers
from asyncdlock.kinds.verbs import Kinds
from asyncdlock.metrics import metrics_of
from asyncdlock.types import MAX_KEY_BYTES, Capabilities, Claim, Grant, NamedOwner, new_claim, owners

_NEVER = -math.inf
_FOR_EVER = math.inf


class LockClient(Kinds, Operating):
    """Locks on one server or cluster, for all tasks of one event loop."""

    def __init__(
        self,
        backend: Backend,
        *,
        max_hold: float | None = None,
        metrics: bool | CollectorRegistry = True,
        prefix: str = "",
        label: str | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        check_prefix(prefix)
        label = default_label() if label is None else label
        check_label(label)
        check_on_lost(on_lost)
        if backend.capabilities.inspection:
            cast(Inspectable, backend).label = label
        counts = metrics_of(backend.name, metrics)
        self._core = Core(backend, counts, prefix=prefix, label=label, on_lost=on_lost)
        self._backend = backend
        self._metrics = self._core.metrics
        self._callers = self._core.callers
        self._max_hold = max_hold
        self._prefix = prefix
        self._new_owner = owners().__next__
        self._grants = Grants(self._core, self._new_owner)
        self._deadlines = self._core.deadlines
        self._upgrades = Upgrades()
        self._valid_ttl = self._valid_timeout = math.nan  # the last ones that passed: most programs use one

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do: waiting in order, sharing, its shortest TTL."""
        return self._backend.capabilities

    @property
    def max_loop_lag(self) -> float:
        """The longest that the event loop kept a renewal waiting, in seconds."""
        return self._core.watchdog.max_loop_lag

    async def acquire(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        shared: bool = False,
        label: str | None = None,
    ) -> Handle:
        """Wait for the lock and return a handle that holds it.

        With `renew` the lease is extended in the background until it is released or lost, or until
        `max_hold` seconds have passed. With `shared` the lock may be held together with others that asked
        for the same: many readers or one writer, in order of arrival. `inspect` shows `label`. A wait that is
        cancelled or times out leaves nothing behind.

        :raises AcquireTimeout: not granted within `timeout` seconds.
        :raises InvalidKey: the key is empty, too long or contains NUL.
        :raises ValueError: the backend cannot do this `ttl`.
        :raises QueueFull: the lock has `max_waiters` waiters already.
        :raises BackendError: the lock server failed.
        :raises LockError: the client is closed, or belongs to another event loop or process; the backend has
            no shared locks; or this task holds the key shared and would wait for itself.
        """
        if shared:
            return await readers(self).acquire(
                key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, label=label
            )
        claim = self._claim(key, ttl, max_hold, label, timeout)
        callers = self._callers
        task = callers.current()
        asked = task.cancelling()
        if asked and getattr(task, "_must_cancel", False):
            # Without a wait the cancellation would come only once the task holds the lock.
            await asyncio.sleep(0)
        metrics, grants = self._metrics, self._grants
        metrics.attempts += 1
        metrics.waiters += 1
        called = time.monotonic()
        callers.inside[task] = asked
        waiting = None
        grant: Grant | None
        try:
            if timeout is not None and timeout <= 0:
                grant = await self._at_once(claim)
            else:
                if timeout is not None and timeout < _FOR_EVER:
                    deadlines, waiting = self._deadlines, self._deadlines.bucket
                    if timeout != deadlines.timeout or called >= deadlines.same_until:
                        waiting = deadlines.enter(called, timeout)
                    waiting.add(task)
                # `Grants.win`, written out: one coroutine less for every waiter.
                grant = await self._backend.acquire(claim)
                if grant.expires_at <= time.monotonic() or not grants.rises(claim.key, grant.fence):
                    grant = await grants.win_again(self._backend.acquire, grant)
        except BaseException as error:
            if (
                waiting is not None
                and task in self._deadlines.expired
                and self._deadlines.settle(task, asked)
                and isinstance(error, asyncio.CancelledError)
            ):
                late = self._core.too_late(claim, timeout)
                self._core.failed(task, claim, late)
                raise late from None
            self._core.failed(task, claim, error)
            raise
        finally:
            metrics.waiters -= 1
            del callers.inside[task]
            if callers.gone is not None:
                callers.left(task)
            if waiting is not None:
                waiting.discard(task)
                if self._deadlines.expired and task in self._deadlines.expired:
                    self._deadlines.settle(task, asked)
        assert grant is not None, "acquire waits until there is one"
        return self._granted(grant, called, renew, max_hold)

    async def try_acquire(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        renew: bool = True,
        max_hold: float | None = None,
        shared: bool = False,
        label: str | None = None,
    ) -> Handle | None:
        """One attempt that never waits for another holder; `None` when there is one, or when others wait.

        :raises InvalidKey, ValueError, BackendError, LockError: as `acquire` does.
        """
        if shared:
            return await readers(self).try_acquire(key, ttl=ttl, renew=renew, max_hold=max_hold, label=label)
        claim = self._claim(key, ttl, max_hold, label)
        return await self._attempt(self._backend.try_acquire, claim, renew, max_hold)

    async def _attempt(self, verb: Verb, claim: Claim, renew: bool, max_hold: float | None) -> Handle | None:
        """Run `verb` for `claim`; if it is cancelled or fails, the claim is given back in the background."""
        callers = self._callers
        task = callers.current()
        asked = task.cancelling()
        if asked and getattr(task, "_must_cancel", False):
            await asyncio.sleep(0)  # as in `acquire`
        self._metrics.attempts += 1
        called = time.monotonic()
        callers.inside[task] = asked
        try:
            grant = await self._grants.win(verb, claim)
        except BaseException as error:
            self._core.failed(task, claim, error)
            raise
        finally:
            del callers.inside[task]
            if callers.gone is not None:
                callers.left(task)
        return None if grant is None else self._granted(grant, called, renew, max_hold)

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
    ) -> Hold:
        """`async with client.hold(key) as handle:` runs the body while the lock is held.

        When the lease is lost the body is cancelled and `LockLost` comes out. The caller's own
        cancellation and timeouts pass through as they are. A release that fails on the way out is retried in
        the background, and not raised if by the clock the lease outlived the body.

        :raises LockLost: the lease was lost while the body ran, or the release found it lost.
        :raises LockError: the object that this returns is already in use.
        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError: as `acquire` does.
        """
        acquire = readers(self).acquire if shared else self.acquire
        wait = partial(acquire, key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, label=label)
        return Hold(key, wait)

    async def aclose(self) -> None:
        """Give back what is held, finish clean-up in the background, close connections.

        Callers that wait in `acquire` get a `LockError`. If cancelled, closing goes on in the background. In
        a forked child of the process that the client belongs to, nothing happens.

        :raises LockError: the client belongs to another event loop.
        """
        await self._core.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _claim(
        self,
        key: str,
        ttl: float,
        max_hold: float | None,
        label: str | None,
        timeout: float | None = None,
        *,
        exclusive: bool = True,
    ) -> Claim:
        if max_hold is not None:
            check_max_hold(max_hold)
        if timeout is not None and (timeout != self._valid_timeout or type(timeout) is bool):
            check_timeout(timeout)
            self._valid_timeout = timeout
        if self._prefix:
            key = self._named(key)
        # Most keys are plain; only the rest needs a closer look.
        if type(key) is not str or not key.isascii() or not 0 < len(key) <= MAX_KEY_BYTES or "\0" in key:
            key = check_key(key)
        if ttl != self._valid_ttl or ttl is True:
            check_ttl(ttl, self._backend)
            self._valid_ttl = ttl
        if exclusive and self._upgrades.possible:
            self._upgrades.refuse(key, self._prefix)
        owner = self._new_owner()
        if label is not None:
            check_label(label)
            owner = NamedOwner.of(owner, label)
        return new_claim((key, owner, ttl))

    async def _at_once(self, claim: Claim) -> Grant:
        grant = await self._grants.win(self._backend.try_acquire, claim)
        if grant is None:
            raise self._core.too_late(claim, 0.0)
        return grant

    def _granted(self, grant: Grant, called: float, renew: bool, max_hold: float | None) -> Handle:
        now = time.monotonic()
        core = self._core
        metrics = core.metrics
        metrics.acquired += 1
        metrics.acquire_seconds.observe(now - called)
        if max_hold is None:
            max_hold = self._max_hold
        renew_until = _NEVER if not renew else _FOR_EVER if max_hold is None else now + max_hold
        where = caller() if self._callers.debug else None
        holding = Holding(core, grant, now, renew_until, where)
        core.watchdog.watch(holding, now)
        return Handle(holding)
