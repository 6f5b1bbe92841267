"""hold(): runs a body under a lock, with the lease's deadline as a dead man's switch.

The timer that cancels the body is armed with the lease's own deadline, and only a confirmed
renewal moves it. A hung, crashed or starved watchdog therefore ends the body; it can never extend
the lease.
"""

import asyncio
import logging
from types import TracebackType
from typing import Protocol

from asyncdlock._holding import HELD, RAN_OUT
from asyncdlock.errors import BackendError, LockError
from asyncdlock.handle import Handle

_log = logging.getLogger("asyncdlock")


class Taking(Protocol):
    """Who waits for the lock: a client, or the part of it that takes a lock beside others."""

    async def acquire(
        self,
        key: str,
        *,
        ttl: float,
        timeout: float | None,
        renew: bool,
        max_hold: float | None,
        label: str | None,
    ) -> Handle: ...


class Hold:
    """What `LockClient.hold` returns: an async context manager for one task at a time."""

    __slots__ = (
        "_client",
        "_deadman",
        "_entered",
        "_handle",
        "_key",
        "_label",
        "_max_hold",
        "_renew",
        "_timeout",
        "_ttl",
    )

    def __init__(
        self,
        client: Taking,
        key: str,
        *,
        ttl: float,
        timeout: float | None,
        renew: bool,
        max_hold: float | None,
        label: str | None,
    ) -> None:
        self._client = client
        self._key = key
        self._ttl = ttl
        self._timeout = timeout
        self._renew = renew
        self._max_hold = max_hold
        self._label = label
        self._entered = False

    async def __aenter__(self) -> Handle:
        if self._entered:
            # One more handle would take the place of the first: its exit would release the wrong lock.
            raise LockError(f"this hold of {self._key!r} is in use; call hold() for each use", key=self._key)
        self._entered = True
        try:
            handle = await self._client.acquire(
                self._key,
                ttl=self._ttl,
                timeout=self._timeout,
                renew=self._renew,
                max_hold=self._max_hold,
                label=self._label,
            )
        except BaseException:
            self._entered = False
            raise
        # No await may come between the grant and the armed switch.
        self._handle = handle
        loop = asyncio.get_running_loop()
        self._deadman = asyncio.timeout_at(loop.time() + handle.remaining())
        await self._deadman.__aenter__()
        handle._holding.deadman = self._deadman
        return handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._entered:
            raise LockError(f"this hold of {self._key!r} is left without having been entered", key=self._key)
        handle, deadman = self._handle, self._deadman
        del self._handle, self._deadman
        holding = handle._holding
        holding.deadman = None
        try:
            try:
                await deadman.__aexit__(kind, error, trace)
            except TimeoutError:
                # Raised by the switch alone: the body's own TimeoutError passes through untouched.
                holding.lose(RAN_OUT)
                holding.core.cleanup.give_back(holding.grant.claim)
                raise holding.lost_error() from error
            if deadman.expired():
                # The body was cancelled and went on all the same, or ended in its own way.
                holding.lose(RAN_OUT)
            kept = await _release(handle)
            if kind is None and not kept:
                raise holding.lost_error()
        finally:
            self._entered = False


async def _release(handle: Handle) -> bool:
    """Give the lock back; `False` when the body ran, for a part, without it."""
    holding = handle._holding
    if holding.state is not HELD:
        # Lost, or released by the body itself, perhaps in vain.
        if not holding.was_released:
            holding.core.cleanup.give_back(holding.grant.claim)
        return not holding.was_lost
    held = holding.held
    try:
        return await handle.release()
    except BackendError as failure:
        _log.warning(
            "releasing %r (fence %d) failed, trying on in the background: %s",
            *(handle.key, handle.fence, failure),
            extra={"key": handle.key, "fence": handle.fence},
        )
        holding.core.cleanup.give_back(holding.grant.claim)
        if held:
            # By the clock the lease outlived the body, and its writes carried their fence: no reason to fail.
            return True
        holding.left(owned=False)
        return False
