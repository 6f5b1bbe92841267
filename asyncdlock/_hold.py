"""hold(): runs a body under a lock, with the lease's deadline as a dead man's switch.

The timer that cancels the body is armed with the lease's own deadline, and only a confirmed
renewal moves it. A hung, crashed or starved watchdog therefore ends the body; it can never extend
the lease.
"""

import asyncio
import logging
from types import TracebackType
from typing import TYPE_CHECKING

from asyncdlock.errors import BackendError
from asyncdlock.handle import Handle

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

_log = logging.getLogger("asyncdlock")


class Hold:
    """What `LockClient.hold` returns: an async context manager, to be entered once."""

    __slots__ = ("_client", "_deadman", "_handle", "_key", "_max_hold", "_renew", "_timeout", "_ttl")

    def __init__(
        self,
        client: "LockClient",
        key: str,
        *,
        ttl: float,
        timeout: float | None,
        renew: bool,
        max_hold: float | None,
    ) -> None:
        self._client = client
        self._key = key
        self._ttl = ttl
        self._timeout = timeout
        self._renew = renew
        self._max_hold = max_hold

    async def __aenter__(self) -> Handle:
        handle = await self._client.acquire(
            self._key, ttl=self._ttl, timeout=self._timeout, renew=self._renew, max_hold=self._max_hold
        )
        # No await may come between the grant and the armed switch.
        self._handle = handle
        loop = asyncio.get_running_loop()
        self._deadman = asyncio.timeout_at(loop.time() + handle.remaining())
        await self._deadman.__aenter__()
        handle.arm(self._deadman)
        return handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle = self._handle
        handle.arm(None)
        try:
            await self._deadman.__aexit__(kind, error, trace)
        except TimeoutError:
            # Raised by the switch alone: the body's own TimeoutError passes through untouched.
            handle.lose("its lease ran out before it was renewed")
            self._client.cleanup.give_back(handle.claim)
            raise handle.lost_error() from error
        owned = await self._release(handle)
        if kind is None and not owned:
            raise handle.lost_error()

    async def _release(self, handle: Handle) -> bool:
        """Give the lock back; `False` when the body ran, for a part, without it."""
        if not handle.active:
            # Lost, or released by the body itself, perhaps in vain.
            if not handle.was_released:
                self._client.cleanup.give_back(handle.claim)
            return not handle.was_lost
        try:
            if await handle.release():
                return True
        except BackendError as failure:
            # The body is done and its writes carried their fence: no reason to fail the caller.
            _log.warning("releasing %r failed, trying on in the background: %s", handle.key, failure)
            self._client.cleanup.give_back(handle.claim)
            return True
        handle.mark_taken()
        return False
