"""LockClient: acquire, try_acquire, hold. The path of one acquire starts here."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from asyncdlock._callers import Callers
from asyncdlock._cleanup import Cleanup
from asyncdlock._fence_memory import FenceMemory
from asyncdlock._hold import Hold
from asyncdlock._local_queue import LocalQueue
from asyncdlock._watchdog import Watchdog
from asyncdlock.backend import Backend, open_backend
from asyncdlock.errors import AcquireTimeout, BackendUnavailable, InvalidKey, LockError
from asyncdlock.handle import Handle
from asyncdlock.metrics import metrics_of
from asyncdlock.types import MAX_KEY_BYTES, Capabilities, Claim, Grant, owners

_log = logging.getLogger("asyncdlock")

_NEVER = -math.inf
_FOR_EVER = math.inf
_CLOSE_TIMEOUT = 5.0
_GRANT_TRIES = 4

_Verb = Callable[[Claim], Awaitable[Grant | None]]


def connect(url: str, *, max_hold: float | None = None, **options: Any) -> "LockClient":
    """A client for the lock server at `url`; nothing is sent before its first use.

    `max_hold` is the default of `acquire` and `hold`. The other options are those of the backend,
    and each may stand in the URL's query as well.

    :raises ValueError: unknown scheme, malformed URL, unknown or invalid option.
    :raises ImportError: the backend's client library is missing; the message names the extra.
    """
    _check_max_hold(max_hold)
    backend = open_backend(url, options)
    if backend.local_queue:
        backend = LocalQueue(backend, handoffs=backend.local_handoffs)
    return LockClient(backend, max_hold=max_hold)


class LockClient:
    """Locks on one server or cluster, for all tasks of one event loop."""

    def __init__(self, backend: Backend, *, max_hold: float | None = None) -> None:
        self.backend = backend
        self.metrics = metrics_of(backend.name)
        self.cleanup = Cleanup(backend)
        self.watchdog = Watchdog(backend, self.metrics)
        self.releasing: set[Handle] = set()
        """Handles whose release is under way."""
        self.closed = False
        self._closing: asyncio.Task[None] | None = None
        self._max_hold = max_hold
        self._callers = Callers()
        self._new_owner = owners().__next__
        self._fences = FenceMemory()
        self._valid_ttl = math.nan  # the last one that passed: most programs use one

    @property
    def capabilities(self) -> Capabilities:
        return self.backend.capabilities

    @property
    def max_loop_lag(self) -> float:
        """The longest that the event loop kept a renewal waiting, in seconds."""
        return self.watchdog.max_loop_lag

    async def acquire(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
    ) -> Handle:
        """Wait for the lock and return a handle that holds it.

        With `renew` the lease is extended in the background until it is released or lost, or until
        `max_hold` seconds have passed. A wait that is cancelled or times out leaves nothing behind.

        :raises AcquireTimeout: not granted within `timeout` seconds.
        :raises InvalidKey: the key is empty, too long or contains NUL.
        :raises ValueError: the backend cannot do this `ttl`.
        :raises QueueFull: the lock has `max_waiters` waiters already.
        :raises BackendError: the lock server failed.
        """
        claim = self._claim(key, ttl, max_hold)
        if timeout is not None and (not isinstance(timeout, int | float) or math.isnan(timeout)):
            raise ValueError(f"timeout must be a number of seconds or None, not {timeout!r}")
        metrics = self.metrics
        metrics.attempts += 1
        metrics.waiters += 1
        called = time.monotonic()
        task = self._callers.enter()
        try:
            if timeout is None:
                # `_win`, written out: one coroutine less for every waiter.
                won = await self.backend.acquire(claim)
                grant = won if self._sound(won) else await self._win_again(self.backend.acquire, won)
            else:
                grant = await self._acquire_within(claim, timeout)
        except BaseException as error:
            self._failed(task, claim, error)
            raise
        finally:
            metrics.waiters -= 1
            self._callers.leave(task)
        assert grant is not None, "acquire waits until there is one"
        return self._granted(grant, called, renew, max_hold)

    async def try_acquire(
        self, key: str, *, ttl: float = 10.0, renew: bool = True, max_hold: float | None = None
    ) -> Handle | None:
        """One attempt that never waits for another holder; `None` when there is one.

        :raises InvalidKey, ValueError, BackendError: as `acquire` does.
        """
        claim = self._claim(key, ttl, max_hold)
        self.metrics.attempts += 1
        called = time.monotonic()
        task = self._callers.enter()
        try:
            grant = await self._win(self.backend.try_acquire, claim)
        except BaseException as error:
            self._failed(task, claim, error)
            raise
        finally:
            self._callers.leave(task)
        return None if grant is None else self._granted(grant, called, renew, max_hold)

    def hold(
        self,
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
    ) -> Hold:
        """`async with client.hold(key) as handle:` runs the body while the lock is held.

        When the lease is lost the body is cancelled and `LockLost` comes out. The caller's own
        cancellation and timeouts pass through as they are.

        :raises LockLost: the lease was lost while the body ran.
        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError: as `acquire` does.
        """
        return Hold(self, key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold)

    async def raise_fence(self, key: str, *, above: int) -> None:
        """Make every later fence of `key` larger than `above`.

        The repair for a fence counter that was lost with its server's data: the resource still
        remembers high fences and refuses everybody. Pass the `seen` that it reports.

        :raises LockError: this backend's fences cannot be raised, or the client is closed.
        :raises BackendError: the server failed; calling again is safe.
        """
        self._check_open()
        _check_key(key)
        if not 0 <= above < 2**63 - 1:
            raise ValueError(f"a fence lies between 1 and 2^63-1; cannot raise it above {above}")
        if not self.capabilities.fence_floor:
            raise LockError(f"the fences of {self.backend.name} come from its own log and cannot be raised")
        await self.backend.raise_fence(key, above)

    async def aclose(self) -> None:
        """Give back what is held, finish clean-up in the background, close connections.

        Whoever waits in `acquire` gets a `LockError`. When cancelled, closing goes on in the background.
        """
        self.closed = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="asyncdlock close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            # Waiters first: none of them shall get a lock that is given back below.
            await self._callers.interrupt(_CLOSE_TIMEOUT)
            for handle in (*self.watchdog.watched(), *self.releasing):
                handle.lose("its client was closed")
                self.cleanup.give_back(handle.claim)
            await self.watchdog.aclose()
            await self.cleanup.drain(_CLOSE_TIMEOUT)
        finally:
            await self.backend.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self.closed:
            raise LockError("this client is closed; connect() again")

    def _claim(self, key: str, ttl: float, max_hold: float | None) -> Claim:
        if self.closed or max_hold is not None:
            self._check_open()
            _check_max_hold(max_hold)
        # Most keys are plain; the rest is looked at more closely.
        if type(key) is not str or not key.isascii() or not 0 < len(key) <= MAX_KEY_BYTES or "\0" in key:
            _check_key(key)
        if ttl != self._valid_ttl:
            _check_ttl(ttl, self.backend)
            self._valid_ttl = ttl
        return Claim(key, self._new_owner(), ttl)

    async def _acquire_within(self, claim: Claim, timeout: float) -> Grant:
        if timeout <= 0:
            grant = await self._win(self.backend.try_acquire, claim)
            if grant is not None:
                return grant
        else:
            try:
                async with asyncio.timeout(timeout) as waiting:
                    grant = await self._win(self.backend.acquire, claim)
                    assert grant is not None, "acquire waits until there is one"
                    return grant
            except TimeoutError:
                if not waiting.expired():
                    raise
        self.metrics.acquire_timeouts += 1
        raise AcquireTimeout(f"lock {claim.key!r} was not granted within {timeout:g} s") from None

    async def _win(self, verb: _Verb, claim: Claim) -> Grant | None:
        """What `verb` grants, once it is a grant to rely on."""
        grant = await verb(claim)
        return grant if grant is None or self._sound(grant) else await self._win_again(verb, grant)

    def _sound(self, grant: Grant) -> bool:
        """Whether the lease can be relied on still, and its fence is above all that were seen."""
        return grant.expires_at > time.monotonic() and self._fences.rises(grant.claim.key, grant.fence)

    async def _win_again(self, verb: _Verb, grant: Grant) -> Grant | None:
        """Give back a grant that is not sound, and ask for another."""
        claim = grant.claim
        for _ in range(_GRANT_TRIES):
            if grant.expires_at <= time.monotonic():
                # The answer took longer than the lease lasts: to return it would be to lie.
                await self.backend.release(claim)
            elif not await self._counter_repaired(grant):
                return grant
            again = await verb(claim)
            if again is None or self._sound(again):
                return again
            grant = again
        await self.backend.release(claim)
        raise BackendUnavailable(
            f"{claim.key!r} was granted {_GRANT_TRIES + 1} times, but never for longer than the answer took: "
            f"its ttl of {claim.ttl:g} s is too short for this server"
        )

    async def _counter_repaired(self, grant: Grant) -> bool:
        """The server handed out a fence that this client has seen pass: it lost data.

        Where the counter can be lifted above what we know, do so and give the lock back, to be taken
        again: the caller never sees its fences run backwards. Elsewhere the resource will refuse them.
        """
        key = grant.claim.key
        highest = self._fences.highest(key)
        self.metrics.fence_regressions += 1
        _log.error("the fence of %r went back from %d to %d: its server lost data", key, highest, grant.fence)
        if not self.capabilities.fence_floor:
            return False
        await self.backend.release(grant.claim)
        await self.backend.raise_fence(key, highest)
        return True

    def _failed(self, task: "asyncio.Task[object]", claim: Claim, error: BaseException) -> None:
        """Cancelled, timed out or failed: the claim may have won on the server all the same.

        :raises LockError: it was interrupted because this client closes.
        """
        if not isinstance(error, LockError) or not getattr(error, "definite", False):
            self.cleanup.give_back(claim)
        self._callers.check(task, error)

    def _granted(self, grant: Grant, called: float, renew: bool, max_hold: float | None) -> Handle:
        now = time.monotonic()
        metrics = self.metrics
        metrics.acquired += 1
        metrics.acquire_seconds.observe(now - called)
        if max_hold is None:
            max_hold = self._max_hold
        renew_until = _NEVER if not renew else _FOR_EVER if max_hold is None else now + max_hold
        handle = Handle(self, grant, now, renew_until)
        self.watchdog.watch(handle, now)
        return handle


def _check_key(key: str) -> None:
    if not isinstance(key, str):
        raise InvalidKey(f"a key is a str, not {type(key).__name__}")
    if not key:
        raise InvalidKey("a key must not be empty")
    if "\0" in key:
        raise InvalidKey("a key must not contain NUL")
    if key.isascii():
        size = len(key)
    else:
        try:
            size = len(key.encode())
        except UnicodeEncodeError as error:
            raise InvalidKey(f"a key must be valid Unicode: {error.reason}") from None
    if size > MAX_KEY_BYTES:
        raise InvalidKey(f"a key has at most {MAX_KEY_BYTES} UTF-8 bytes, this one has {size}")


def _check_ttl(ttl: float, backend: Backend) -> None:
    can = backend.capabilities
    if not isinstance(ttl, int | float) or not 0 < ttl < 2**31:
        raise ValueError(f"ttl must be a positive number of seconds, not {ttl!r}")
    if ttl < can.min_ttl:
        raise ValueError(f"{backend.name} cannot do a ttl of {ttl:g} s: the shortest is {can.min_ttl:g} s")
    if can.ttl_step and ttl % can.ttl_step:
        raise ValueError(
            f"{backend.name} cannot do a ttl of {ttl:g} s: it takes multiples of {can.ttl_step:g} s"
        )


def _check_max_hold(max_hold: float | None) -> None:
    if max_hold is not None and (not isinstance(max_hold, int | float) or not max_hold > 0):
        raise ValueError(f"max_hold must be a positive number of seconds or None, not {max_hold!r}")
