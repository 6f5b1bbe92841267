"""One holding of a lock, from its grant to its end: the state behind a Handle.

Only a confirmed renewal moves the deadline. The end of a holding is reported to everybody who waits for it,
and to the dead man's switch of `hold()`.
"""

import asyncio
import enum
import math
import sys
import time
import warnings
from typing import TYPE_CHECKING

from asyncdlock.errors import BackendError, LockLost
from asyncdlock.types import Grant

if TYPE_CHECKING:
    from asyncdlock._core import Core
    from asyncdlock._deadman import Deadman

RAN_OUT = "its lease ran out before it was renewed"
CLOSED = "its client was closed"
NOT_OWNED = "the server says that it is owned by another or expired"


class State(enum.Enum):
    """Where a holding is in its life."""

    HELD = "held"
    LOST = "lost"
    """The lease is over, or not known to be alive. Something may be left on the server."""
    TAKEN = "lost, as its release found"
    """Lost, and nothing is left to give back."""
    RELEASING = "being released"
    UNANSWERED = "asked back in vain"
    """The release failed: it may be tried again."""
    RELEASED = "released"


HELD = State.HELD
_LOST, _TAKEN = State.LOST, State.TAKEN
RELEASING = State.RELEASING
_UNANSWERED, _RELEASED = State.UNANSWERED, State.RELEASED


class Holding:
    """All mutable state of one holding."""

    __slots__ = (
        "_ended",
        "_reason",
        "bucket",
        "core",
        "deadman",
        "expires_at",
        "grant",
        "granted_at",
        "renew_until",
        "state",
        "where",
    )

    def __init__(self, core: "Core", grant: Grant, now: float, renew_until: float, where: str | None) -> None:
        self.core: Core = core
        self.grant: Grant = grant
        self.granted_at: float = now
        self.expires_at: float = grant.expires_at
        self.state: State = HELD
        self.deadman: Deadman | None = None
        """The switch of `hold()`, which follows the deadline."""
        # Both belong to the watchdog: until when it may renew, and where in its wheel this holding is.
        self.renew_until: float = renew_until
        self.bucket: set[Holding] | None = None
        self.where: str | None = where
        """The line that acquired it, noted in debug mode only."""
        self._reason = ""
        self._ended: asyncio.Future[bool] | None = None

    @property
    def held(self) -> bool:
        return self.state is HELD and time.monotonic() < self.expires_at

    @property
    def was_lost(self) -> bool:
        return self.state is _LOST or self.state is _TAKEN

    @property
    def was_released(self) -> bool:
        """Whether nothing is left to give back, or somebody else takes care of it."""
        return self.state in (RELEASING, _RELEASED, _TAKEN)

    def check(self) -> None:
        """:raises LockLost: the lease is lost, has run out, or was released."""
        if self.held:
            return
        self.lose(RAN_OUT)
        raise self.lost_error()

    @property
    def key(self) -> str:
        """The lock's name for its holder, without the client's prefix."""
        return self.grant.claim.key[len(self.core.prefix) :]

    def lost_error(self) -> LockLost:
        key, owner, fence = self.key, self.grant.claim.owner, self.grant.fence
        how = f"was lost: {self._reason}" if self.was_lost else "was released"
        return LockLost(f"lock {key!r} (fence {fence}) {how}", key=key, owner=owner, fence=fence)

    def about(self, error: BackendError) -> BackendError:
        """`error`, with the lock that it is about."""
        error.key, error.owner, error.fence = self.key, self.grant.claim.owner, self.grant.fence
        return error

    async def wait_ended(self) -> bool:
        """Whether it ended by a loss, once it has."""
        if self.state is HELD or self.state is RELEASING:
            if self._ended is None:
                self._ended = asyncio.get_running_loop().create_future()
            return await asyncio.shield(self._ended)
        return self.was_lost

    def extend(self, expires_at: float) -> None:
        """After a confirmed renewal: move the deadline, or lose the lease whose deadline has passed."""
        if not self.move_deadline(expires_at):
            self.lose(RAN_OUT)

    def move_deadline(self, expires_at: float) -> bool:
        """After a confirmed renewal only. `False`: it had passed, so the lease is lost. From any thread."""
        if self.state is HELD and expires_at > self.expires_at:
            if time.monotonic() >= self.expires_at:
                # Others may have held the lock since, and a late copy of our own request brought it back.
                return False
            self.expires_at = expires_at
        return True

    def lose(self, reason: str) -> None:
        """The lease is gone: tell everybody who waits for that."""
        if self.state is not HELD:
            return
        self._end(_LOST)
        self._lost(reason)
        if self.deadman is not None:
            self.deadman.look_now()
        if self.core.queue is not None:
            self.core.queue.lapsed(self.grant.claim)

    def abandon(self) -> None:
        """Nobody can release it any more: leave its lease to run out. May be called from any thread."""
        self.renew_until = -math.inf
        if self.core.foreign:
            return
        where = "" if self.where is None else f" It was acquired at {self.where}."
        warnings.warn(
            f"lock {self.key!r} (fence {self.grant.fence}) was dropped and never released: it is "
            f"renewed no longer and ends with its lease.{where}",
            ResourceWarning,
            stacklevel=3,
        )

    def disown(self) -> None:
        """This process was forked from the one that holds it."""
        self.state = _LOST
        self._reason = "it is held by the process that this one was forked from"

    # The three steps of a release

    def leave(self) -> None:
        """From here on nobody relies on it, whatever becomes of the release."""
        # The watchdog keeps it, in case the client is closed meanwhile.
        self.core.metrics.held_seconds.observe(time.monotonic() - self.granted_at)
        self.state = RELEASING
        if self.deadman is not None:
            self.deadman.disarm()

    def left(self, owned: bool) -> None:
        """The server has answered: it was owned until now, or had been lost unnoticed."""
        if self.state is RELEASING or self.state is _UNANSWERED:
            if self.bucket is not None:
                self.bucket.discard(self)
            if owned:
                self.state = _RELEASED
                if self._ended is not None:
                    self._tell(lost=False)
            else:
                self.state = _TAKEN
                self._lost("it was no longer owned when it was released")

    def unanswered(self) -> None:
        """The release failed; it may be asked again."""
        if self.state is RELEASING:
            if self.bucket is not None:
                self.bucket.discard(self)
            self.state = _UNANSWERED
        self._tell(lost=False)

    def _tell(self, *, lost: bool) -> None:
        """End every `wait_ended`."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(lost)

    def _lost(self, reason: str) -> None:
        self._reason = reason
        self.core.metrics.lost += 1
        self._tell(lost=True)
        self.core.tell_lost(self.lost_error())

    def _end(self, state: State) -> None:
        if self.bucket is not None:
            self.bucket.discard(self)
        self.core.metrics.held_seconds.observe(time.monotonic() - self.granted_at)
        self.state = state


def caller() -> str:
    """The line outside this package that acquired the lock."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "asyncdlock":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
