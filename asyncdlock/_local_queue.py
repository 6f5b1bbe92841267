"""Waiters of one process: one remote place per key, a local FIFO behind it, hand-off without a round trip.

A LocalQueue is a Backend around a Backend and knows nothing of servers. Per key, one claim of this
process is known to the server at a time. The others wait here. A release passes the lock to the
next of them, with the next fence of a block that the remote grant reserved, as long as

- the block has a fence left and the turn of this process has lasted for less than a tenth of a second: these
  two bound how long other processes wait,
- the lease was fresh at most a tenth of its TTL ago, and no renewal has cast doubt on it,
- the next waiter asked for the same TTL.

Otherwise the lock goes back to the server, and the next local waiter goes to the end of the
server's queue; its request does not wait for the answer to the release. Every holder has its own
fence, strictly larger than the one before.

A claim to hold the key together with others (`SharedClaim`) waits here only behind exclusive waiters that
came before it; then it goes to the server's queue. Nothing is handed past it to claims that come later.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from heapq import heappop, heappush

from asyncdlock._local_inspection import InspectedQueue
from asyncdlock._local_place import NOBODY, LocalPlace
from asyncdlock.backend import Backend
from asyncdlock.errors import BackendError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, new_grant, validity

_FRESH = 0.9  # of a lease's validity
# Seconds. A hand-off saves a round trip; after so many in a row, one round trip weighs nothing any more.
_LONGEST_TURN = 0.1
# Seconds for which the lock is then left free where nobody is woken: those who poll must meet it free.
_LEFT_FREE = 0.01


class LocalQueue(InspectedQueue):
    """A Backend that sends one claim per key at a time to the Backend inside."""

    def __init__(self, backend: Backend, *, handoffs: int, longest_turn: float = _LONGEST_TURN) -> None:
        self._backend = backend
        self._handoffs = handoffs
        self._longest_turn = longest_turn
        self._others_poll = not backend.capabilities.push_wakeup
        self._places: dict[str, LocalPlace] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # once somebody waits
        # Of a lock that was not given back for certain: the local owner, and the claim that the server knows.
        self._unfinished: dict[str, Claim] = {}
        self._forget_at: list[tuple[float, str]] = []
        self.name: str = backend.name
        self.local_queue = True
        self.local_handoffs = handoffs

    @property
    def capabilities(self) -> Capabilities:
        return self._backend.capabilities

    @property
    def commands(self) -> int:
        return self._backend.commands

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        place = self._places.get(claim.key)
        if type(claim) is not Claim:
            return await self._acquire_beside(place, claim)
        if place is None:
            self._places[claim.key] = place = LocalPlace(claim)
        else:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            future: asyncio.Future[Grant | None] = self._loop.create_future()
            place.add(claim, future)
            if place.timer is None:
                self._watch_lease(claim.key, place)
            handed = await future
            if handed is not None:
                return handed
        return await self._acquire_remotely(place, claim)

    async def _acquire_beside(self, place: LocalPlace | None, claim: Claim) -> Grant:
        """Ask the server, behind those who wait here for the lock exclusively."""
        if place is None:
            return await self._backend.acquire(claim)
        if not place.waiters:
            place.beside = True
            return await self._backend.acquire(claim)
        future: asyncio.Future[Grant | None] = asyncio.get_running_loop().create_future()
        place.add(claim, future)
        self._watch_lease(claim.key, place)
        try:
            await future
            return await self._backend.acquire(claim)
        finally:
            if not future.cancelled():
                place.asking -= 1
                if not place.asking:
                    self._pass_turn(claim.key, place)

    async def _acquire_remotely(self, place: LocalPlace, claim: Claim) -> Grant:
        try:
            if self._others_poll:
                grant = await self._acquire_among_pollers(place, claim)
            else:
                grant = await self._backend.acquire(claim, reserve=self._handoffs)
        except BaseException as error:
            self._failed(place, claim, error)
            raise
        return self._won(place, grant)

    async def _acquire_among_pollers(self, place: LocalPlace, claim: Claim) -> Grant:
        """After a whole turn, leave the lock free for a moment: else this would go out with the release."""
        asked = time.monotonic()
        if not place.had_since:
            place.had_since = asked
        elif asked - place.had_since > self._longest_turn:
            await asyncio.sleep(_LEFT_FREE)
        grant = await self._backend.acquire(claim, reserve=self._handoffs)
        if time.monotonic() - asked >= _LEFT_FREE:
            place.had_since = time.monotonic()
        return grant

    async def try_acquire(self, claim: Claim) -> Grant | None:
        place = self._places.get(claim.key)
        if place is not None and (place.waiters or place.expires_at > time.monotonic()):
            return None
        if type(claim) is not Claim:
            return await self._backend.try_acquire(claim)
        # None, or one whose lease ended without a release: nobody waited, so no timer looked.
        self._places[claim.key] = place = LocalPlace(claim)
        try:
            grant = await self._backend.try_acquire(claim)
        except BaseException as error:
            self._failed(place, claim, error)
            raise
        if grant is None:
            self._pass_turn(claim.key, place)
            return None
        return self._won(place, grant)

    def _won(self, place: LocalPlace, grant: Grant) -> Grant:
        place.remote = grant
        place.expires_at = grant.expires_at
        fresh_until = grant.expires_at - _FRESH * validity(grant.claim.ttl)
        place.hand_on_until = min(fresh_until, time.monotonic() + self._longest_turn)
        self._watch_lease(grant.claim.key, place)
        return grant

    def _failed(self, place: LocalPlace, claim: Claim, error: BaseException) -> None:
        if isinstance(error, BackendError) and error.definite:
            self._pass_turn(claim.key, place)
            return
        # What the claim left on the server is not known yet. The client's clean-up calls
        # release(), which passes the turn; the timer is the backstop should that fail as well.
        place.doubtful = True
        place.expires_at = time.monotonic() + claim.ttl
        self._watch_lease(claim.key, place)

    async def release(self, claim: Claim) -> bool:
        if self._unfinished and claim.owner in self._unfinished:
            return await self._leave(claim.owner, self._unfinished.pop(claim.owner))
        place = self._places.get(claim.key)
        if place is None or place.holder != claim.owner:
            if place is not None and place.waiters.pop(claim.owner, None) is not None:
                return False
            return await self._backend.release(claim)
        waiters = place.waiters
        while waiters:
            owner, (successor, future) = waiters.popitem(last=False)
            if future.done():
                continue  # cancelled
            if place.may_hand_to(successor):
                assert place.remote is not None
                place.used += 1
                place.holder = owner
                fence = place.remote.fence + place.used
                future.set_result(new_grant((successor, fence, place.expires_at, 0)))
                return True
            waiters[owner] = successor, future
            waiters.move_to_end(owner, last=False)
            break
        remote = claim if place.remote is None else place.remote.claim
        # Not after the answer: the server keeps the next one waiting until the lock is free, whichever
        # request comes first and whatever becomes of this one.
        self._pass_turn(claim.key, place)
        return await self._leave(claim.owner, remote)

    async def _leave(self, owner: str, remote: Claim) -> bool:
        try:
            return await self._backend.release(remote)
        except BaseException:
            self._remember(owner, remote)
            raise

    def _remember(self, owner: str, remote: Claim) -> None:
        """Whoever asks again names the last holder here; the server knows the first. Kept for a TTL."""
        now = time.monotonic()
        while self._forget_at and self._forget_at[0][0] <= now:
            self._unfinished.pop(heappop(self._forget_at)[1], None)
        self._unfinished[owner] = remote
        heappush(self._forget_at, (now + remote.ttl, owner))

    def lapsed(self, claim: Claim) -> None:
        """Its holder has lost the lease and may never release it."""
        place = self._places.get(claim.key)
        if place is not None and place.holder == claim.owner and place.expires_at <= time.monotonic():
            self._end_lease(claim.key, place)

    def _end_lease(self, key: str, place: LocalPlace) -> None:
        """The lease ended without a release: keep only what a late release would need."""
        if place.remote is not None and place.remote.claim.owner != place.holder:
            self._remember(place.holder, place.remote.claim)
        self._pass_turn(key, place)

    def _pass_turn(self, key: str, place: LocalPlace) -> None:
        """Nothing of this process stays on the server for `key`: let the next waiter go there."""
        if place.timer is not None:
            place.timer.cancel()
            place.timer = None
        while place.waiters:
            owner, (claim, future) = place.waiters.popitem(last=False)
            if future.done():
                continue
            if type(claim) is Claim:
                if place.asking:
                    place.waiters[owner] = claim, future
                    place.waiters.move_to_end(owner, last=False)
                    break
                place.turn_of(claim)
                future.set_result(None)
                return
            # Those who hold it beside each other go to the server together; who wants it alone follows when
            # they have it: the requests of one process may overtake each other.
            place.asking += 1
            future.set_result(None)
        if place.asking:
            place.turn_of(NOBODY)
            return
        if self._places.get(key) is place:
            del self._places[key]

    def _watch_lease(self, key: str, place: LocalPlace) -> None:
        """While somebody waits here, notice a lease that ended without a release."""
        if place.timer is not None:
            place.timer.cancel()
            place.timer = None
        if place.waiters and place.expires_at < math.inf:
            delay = max(0.0, place.expires_at - time.monotonic()) + 0.005
            place.timer = asyncio.get_running_loop().call_later(delay, self._lease_due, key, place)

    def _lease_due(self, key: str, place: LocalPlace) -> None:
        place.timer = None
        if place.expires_at > time.monotonic():
            self._watch_lease(key, place)
        else:
            self._end_lease(key, place)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        states = [LeaseState.LOST] * len(grants)
        asked: list[tuple[int, LocalPlace | None, Grant]] = []
        for index, grant in enumerate(grants):
            place = self._places.get(grant.claim.key)
            if place is not None and place.holder == grant.claim.owner and place.remote is not None:
                asked.append((index, place, place.remote))
            elif type(grant.claim) is not Claim:
                asked.append((index, None, grant))
        noted = time.monotonic()
        answers = await self._backend.renew([remote for _, _, remote in asked])
        for (index, place, remote), state in zip(asked, answers, strict=True):
            states[index] = state
            if place is None or place.remote is not remote:
                continue
            if state is LeaseState.RENEWED:
                place.doubtful = False
                place.expires_at = max(place.expires_at, noted + validity(remote.claim.ttl))
            else:
                place.doubtful = True
                if state is LeaseState.LOST:
                    # Nothing to wait for, whenever the holder gets round to its release.
                    place.expires_at = noted
                    self._watch_lease(remote.claim.key, place)
        return states

    async def raise_fence(self, key: str, above: int) -> None:
        # Before and after: a block may have been reserved while the counter was being raised.
        self._stop_hand_off(key, above)
        await self._backend.raise_fence(key, above)
        self._stop_hand_off(key, above)

    def _stop_hand_off(self, key: str, above: int) -> None:
        place = self._places.get(key)
        if place is not None:
            place.floor = max(place.floor, above)

    async def aclose(self) -> None:
        for place in self._places.values():
            if place.timer is not None:
                place.timer.cancel()
        await self._backend.aclose()
