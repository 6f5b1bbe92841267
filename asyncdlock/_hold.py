"""hold(): runs a body under a lock, with the lease's deadline as a dead man's switch."""

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType

from asyncdlock._deadman import Deadman
from asyncdlock._holding import CLOSED, HELD, RAN_OUT
from asyncdlock.errors import BackendError, LockError
from asyncdlock.handle import Handle

_log = logging.getLogger("asyncdlock")


class Guard:
    """Watches over the current task from the moment of the grant until it leaves."""

    __slots__ = ("_deadman", "_handle")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._deadman = handle._holding.deadman = Deadman(handle._holding)

    async def leave(self, error: BaseException | None) -> None:
        """Give the lock back after the body, which ended with `error`.

        :raises LockLost: the lease was lost while the body ran, or the release found it lost.
        """
        handle = self._handle
        holding = handle._holding
        holding.deadman = None
        if self._deadman.ended(error):
            holding.lose(RAN_OUT)
            holding.core.cleanup.give_back(holding.grant.claim)
            raise holding.lost_error() from error
        if self._deadman.fired:
            # The body was cancelled and went on all the same, or ended in its own way.
            holding.lose(RAN_OUT)
        kept = await give_back(handle)
        if error is None and not kept:
            raise holding.lost_error()


class Hold:
    """What `LockClient.hold` returns: an async context manager for one task at a time."""

    __slots__ = ("_acquire", "_entered", "_guard", "_key")

    def __init__(self, key: str, acquire: Callable[[], Awaitable[Handle]]) -> None:
        self._key = key
        self._acquire = acquire
        self._entered = False

    async def __aenter__(self) -> Handle:
        if self._entered:
            # One more handle would take the place of the first: its exit would release the wrong lock.
            raise LockError(f"this hold of {self._key!r} is in use; call hold() for each use", key=self._key)
        self._entered = True
        try:
            handle = await self._acquire()
        except BaseException:
            self._entered = False
            raise
        # No await may come between the grant and the armed switch.
        self._guard = Guard(handle)
        return handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._entered:
            raise LockError(f"this hold of {self._key!r} is left without having been entered", key=self._key)
        guard = self._guard
        del self._guard
        try:
            await guard.leave(error)
        finally:
            self._entered = False


async def give_back(handle: Handle) -> bool:
    """Give the lock back; `False` when a part of the body ran without it."""
    holding = handle._holding
    if holding.core.closed:
        # Closing ends the waits first and reports the loss later; until then a release would be refused.
        holding.lose(CLOSED)
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
            "releasing %r (fence %d) failed, retrying in the background: %s",
            *(handle.key, handle.fence, failure),
            extra={"key": handle.key, "fence": handle.fence},
        )
        holding.core.cleanup.give_back(holding.grant.claim)
        if held:
            # By the clock the lease outlived the body, and its writes carried their fence: no reason to fail.
            return True
        holding.left(owned=False)
        return False
