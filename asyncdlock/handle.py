"""Handle: what the holder of a lock sees and may do."""

import asyncio
import time

from asyncdlock._holding import HELD, NOT_OWNED, Holding
from asyncdlock.errors import BackendError
from asyncdlock.types import LeaseState, SharedClaim, label_of, validity


class Handle:
    """A lock that was granted. Attach `fence` to every write that the lock protects.

    `held`, `remaining` and `check` look at the local clock only. Validity counts from before the
    winning request was sent, less an allowance for clock drift, so they err on the safe side.
    They cannot see a pause that comes after they have returned; against that only the resource helps.

    A handle that is dropped without a release causes a `ResourceWarning`; its lease is no longer renewed.
    """

    __slots__ = ("__weakref__", "_holding")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def __del__(self) -> None:
        holding = self._holding
        # Without renewal the lease was meant to run out by itself.
        if holding.state is HELD and holding.renew_until > time.monotonic():
            holding.abandon()

    @property
    def key(self) -> str:
        """The lock's name as the caller gave it, without the client's prefix."""
        return self._holding.key

    @property
    def owner(self) -> str:
        """A fresh UUID for every attempt."""
        return self._holding.grant.claim.owner

    @property
    def fence(self) -> int:
        """The fencing token: larger than that of every earlier grant of this key.

        Those who hold a key together (`shared`) have a fence each, above that of every writer before them and
        below that of every writer after them.
        """
        return self._holding.grant.fence

    @property
    def ttl(self) -> float:
        """How long the lease lasts without a renewal, in seconds."""
        return self._holding.grant.claim.ttl

    @property
    def label(self) -> str:
        """What `inspect` shows of this holder."""
        return label_of(self.owner) or self._holding.core.label

    @property
    def shared(self) -> bool:
        """Whether others may hold the key at the same time: a shared lock, or a permit of a semaphore."""
        return isinstance(self._holding.grant.claim, SharedClaim)

    @property
    def acquired_at(self) -> float:
        """Wall clock, seconds since the epoch: for display."""
        return time.time() - (time.monotonic() - self._holding.granted_at)

    @property
    def expires_at(self) -> float:
        """When the lease ends unless it is renewed, in `time.monotonic()` seconds."""
        return self._holding.expires_at

    @property
    def held(self) -> bool:
        """Whether the lease can still be relied on, by the local clock."""
        return self._holding.held

    def remaining(self) -> float:
        """Seconds for which the lease can still be relied on; 0.0 when it cannot."""
        holding = self._holding
        if holding.state is not HELD:
            return 0.0
        return max(0.0, holding.expires_at - time.monotonic())

    def check(self) -> None:
        """Do nothing while the lease can be relied on.

        Call it after anything that may have stalled the event loop: it reads the clock itself and
        does not depend on any timer having run.

        :raises LockLost: the lease is lost, has run out, or was released.
        """
        self._holding.check()

    async def wait_lost(self) -> bool:
        """Return `True` when the lease is lost, and `False` when the lock was released first."""
        return await self._holding.wait_ended()

    async def renew(self) -> None:
        """Extend the lease by its TTL, from now.

        :raises LockLost: it is no longer owned.
        :raises BackendError: the server did not answer; the lease was not extended.
        :raises LockError: its client belongs to another event loop or process.
        """
        holding = self._holding
        holding.check()
        core = holding.core
        core.callers.current()
        noted = time.monotonic()
        (state,) = await core.backend.renew([holding.grant])
        core.metrics.renewals[state.value] += 1
        if state is LeaseState.LOST:
            holding.lose(NOT_OWNED)
            raise holding.lost_error()
        if state is LeaseState.UNKNOWN:
            raise holding.about(
                BackendError(f"renewal of {self.key!r} was not confirmed; the lease was not extended")
            )
        holding.extend(noted + validity(self.ttl))
        if holding.was_lost:
            raise holding.lost_error()

    async def release(self) -> bool:
        """Give the lock back. `True` when it was still owned.

        A lock that is no longer owned is left alone: the result is `False`, and
        `asyncdlock_release_by_non_owner_total` counts it. Safe to call twice, even at the same time (one of
        the calls gets the `True`), and again after an error. If cancelled, it goes on in the background.

        :raises BackendError: the server failed; the lock ends with its TTL unless this is retried.
        :raises LockError: its client belongs to another event loop or process.
        """
        holding = self._holding
        core = holding.core
        if holding.state is HELD:
            core.callers.current()
            holding.leave()
        elif holding.was_released or core.closed:
            core.metrics.release_by_non_owner += 1
            return False
        else:
            core.callers.current()
        claim = holding.grant.claim
        try:
            owned = await core.backend.release(claim)
        except asyncio.CancelledError:
            holding.left(owned=True)
            core.cleanup.give_back(claim)
            raise
        except BaseException as error:
            holding.unanswered()
            if isinstance(error, BackendError):
                holding.about(error)
            raise
        holding.left(owned)
        if not owned:
            core.metrics.release_by_non_owner += 1
        return owned

    def __repr__(self) -> str:
        state = self._holding.state.value
        return f"<Handle {self.key!r} fence={self.fence} {state} {self.remaining():.3f}s left>"
