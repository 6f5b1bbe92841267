"""Handle: all mutable state of one holding."""

import asyncio
import time
from typing import TYPE_CHECKING

from asyncdlock.errors import BackendError, LockLost
from asyncdlock.types import Claim, Grant, LeaseState, validity

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

_HELD, _LOST, _LEAVING, _RELEASED = "held", "lost", "being released", "released"


class Handle:
    """A lock that was granted. Attach `fence` to every write that the lock protects.

    `held`, `remaining` and `check` look at the local clock only. Validity counts from before the
    winning request was sent, less an allowance for clock drift, so they err on the safe side;
    they cannot see a pause that comes after they returned. Only the resource can.
    """

    __slots__ = (
        "__weakref__",
        "_client",
        "_deadman",
        "_granted_at",
        "_lost_waiter",
        "_reason",
        "_state",
        "acquired_at",
        "bucket",
        "expires_at",
        "grant",
        "renew_until",
    )

    def __init__(self, client: "LockClient", grant: Grant, now: float, renew_until: float) -> None:
        self._client = client
        self.grant = grant
        self._granted_at = now
        self._state = _HELD
        self._reason = ""
        self._deadman: asyncio.Timeout | None = None
        self._lost_waiter: asyncio.Future[None] | None = None
        self.acquired_at = time.time()
        """Wall clock, seconds since the epoch: for display."""
        self.expires_at = grant.expires_at
        """When the lease ends unless it is renewed, in `time.monotonic()` seconds."""
        # Both belong to the watchdog: until when it may renew, and where in its wheel this handle is.
        self.renew_until = renew_until
        self.bucket: set[Handle] | None = None

    @property
    def key(self) -> str:
        return self.grant.claim.key

    @property
    def owner(self) -> str:
        """A fresh UUID for every attempt."""
        return self.grant.claim.owner

    @property
    def fence(self) -> int:
        """The fencing token: larger than that of every earlier grant of this key."""
        return self.grant.fence

    @property
    def ttl(self) -> float:
        return self.grant.claim.ttl

    @property
    def claim(self) -> Claim:
        return self.grant.claim

    @property
    def active(self) -> bool:
        """Neither released nor known to be lost; `held` also looks at the clock."""
        return self._state is _HELD

    @property
    def held(self) -> bool:
        """Whether the lease can still be relied on, by the local clock."""
        return self._state is _HELD and time.monotonic() < self.expires_at

    def remaining(self) -> float:
        """Seconds for which the lease can still be relied on; 0.0 when it cannot."""
        if self._state is not _HELD:
            return 0.0
        return max(0.0, self.expires_at - time.monotonic())

    def check(self) -> None:
        """Do nothing while the lease can be relied on.

        Call it after anything that may have stalled the event loop: it reads the clock itself and
        does not depend on any timer having run.

        :raises LockLost: the lease is lost, has run out, or was released.
        """
        if self.held:
            return
        if self._state is _HELD:
            self.lose("its lease ran out before it was renewed")
        raise self.lost_error()

    async def wait_lost(self) -> None:
        """Return when the lease is lost. Never returns for a lock that was released in time."""
        if self._state is _LOST:
            return
        if self._lost_waiter is None:
            self._lost_waiter = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._lost_waiter)

    async def renew(self) -> None:
        """Extend the lease by its TTL, from now.

        :raises LockLost: it is no longer owned.
        :raises BackendError: the server did not answer; the lease was not extended.
        """
        self.check()
        noted = time.monotonic()
        (state,) = await self._client.backend.renew([self.grant])
        self._client.metrics.renewals[state.value] += 1
        if state is LeaseState.LOST:
            self.lose("the server says that it is owned by another or expired")
            raise self.lost_error()
        if state is LeaseState.UNKNOWN:
            raise BackendError(f"renewal of {self.key!r} was not confirmed; the lease was not extended")
        self.extend(noted + validity(self.ttl))

    async def release(self) -> bool:
        """Give the lock back. `True` when it was still owned.

        A lock no longer owned is left alone: `False`, and `asyncdlock_release_by_non_owner_total`
        counts it. Safe to call twice, also at the same time (one of the calls gets the `True`), and
        again after an error. When cancelled, the release goes on in the background.

        :raises BackendError: the server failed; the lock ends with its TTL unless this is retried.
        """
        client = self._client
        if self._state is _HELD:
            # No longer relied on from here, whatever becomes of the release.
            self._end(_LEAVING)
            if self._deadman is not None and not self._deadman.expired():
                self._deadman.reschedule(None)
        elif self._state is _RELEASED or self in client.releasing or client.closed:
            client.metrics.release_by_non_owner += 1
            return False
        client.releasing.add(self)
        try:
            owned = await client.backend.release(self.grant.claim)
        except asyncio.CancelledError:
            if self._state is _LEAVING:
                self._state = _RELEASED
            client.cleanup.give_back(self.grant.claim)
            raise
        finally:
            client.releasing.discard(self)
        if self._state is _LEAVING:
            self._state = _RELEASED
        if not owned:
            client.metrics.release_by_non_owner += 1
        return owned

    def __repr__(self) -> str:
        return f"<Handle {self.key!r} fence={self.fence} {self._state} {self.remaining():.3f}s left>"

    # What follows is for the watchdog and for hold().

    def extend(self, expires_at: float) -> None:
        """Move the deadline: after a confirmed renewal only."""
        if self._state is not _HELD or expires_at <= self.expires_at:
            return
        self.expires_at = expires_at
        if self._deadman is not None and not self._deadman.expired():
            loop = asyncio.get_running_loop()
            self._deadman.reschedule(loop.time() + expires_at - time.monotonic())

    def lose(self, reason: str) -> None:
        """The lease is gone: tell everybody who waits to know."""
        if self._state is not _HELD:
            return
        self._end(_LOST)
        self._reason = reason
        self._client.metrics.lost += 1
        if self._lost_waiter is not None and not self._lost_waiter.done():
            self._lost_waiter.set_result(None)
        if self._deadman is not None and not self._deadman.expired():
            self._deadman.reschedule(asyncio.get_running_loop().time())

    def lost_error(self) -> LockLost:
        if self._state is not _LOST:
            return LockLost(f"lock {self.key!r} (fence {self.fence}) was released")
        return LockLost(f"lock {self.key!r} (fence {self.fence}) was lost: {self._reason}")

    @property
    def was_lost(self) -> bool:
        return self._state is _LOST

    @property
    def was_released(self) -> bool:
        return self._state is _RELEASED

    def mark_taken(self) -> None:
        """The release found another owner: the lease had been lost unnoticed."""
        self._state = _LOST
        self._reason = "it was no longer owned when it was released"
        self._client.metrics.lost += 1

    def arm(self, deadman: asyncio.Timeout | None) -> None:
        """Let `deadman` follow the deadline of this lease; `None` disarms."""
        self._deadman = deadman

    def _end(self, state: str) -> None:
        client = self._client
        client.watchdog.forget(self)
        client.metrics.held_seconds.observe(time.monotonic() - self._granted_at)
        self._state = state
