"""The Backend's verbs on ephemeral sequential nodes: join the queue, watch the one ahead, leave it.

A session answers its requests in order. So a release that follows a cancelled create in the same session
sees what the create did, and nothing needs to be waited for before it is undone.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence

from kazoo.exceptions import (
    ConnectionLoss,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import Delete
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from asyncdlock.backends.zookeeper.inspection import InspectedZooKeeper
from asyncdlock.backends.zookeeper.names import ROOT, NotQueued
from asyncdlock.backends.zookeeper.parents import Parents
from asyncdlock.backends.zookeeper.place import Place
from asyncdlock.backends.zookeeper.queues import Queues, any_passed, look
from asyncdlock.backends.zookeeper.renewal import renewed
from asyncdlock.backends.zookeeper.session import Ensemble, Session
from asyncdlock.backends.zookeeper.sessions import Sessions
from asyncdlock.backends.zookeeper.wire import Tally, Wire
from asyncdlock.errors import BackendError, LockError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

FENCE_SCALE = 256
"""With local hand-off a fence is czxid * FENCE_SCALE + number of the hand-off."""
_MAX_FENCE = 2**63 - 1
_ANY_VERSION = -1

# The connection went while the request was under way: it may have happened. A session that was opened on
# another server meanwhile gives the same answer.
_UNCERTAIN = (ConnectionLoss, SessionMovedError)


class ZooKeeperBackend(InspectedZooKeeper):
    """Locks in one ensemble. A TTL is the timeout of a session; claims of similar TTLs share one."""

    name = "zookeeper"
    capabilities: Capabilities = Capabilities(
        fencing=True,
        fifo=True,
        push_wakeup=True,
        interprocess=True,
        min_ttl=0.2,
        shared=True,
        semaphore=True,
        inspection=True,
    )

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        chroot: str = "",
        containers: bool = True,
        local_queue: bool = True,
        local_handoffs: int = 0,
    ) -> None:
        self._chroot = chroot
        acl = OPEN_ACL_UNSAFE if ensemble.credentials is None else CREATOR_ALL_ACL
        self._queues = Queues(Parents(chroot, acl, containers=containers), acl)
        self._places: dict[str, Place] = {}
        self._lapsing: set[asyncio.Task[None]] = set()
        self._tally = Tally()
        self._sessions = Sessions(ensemble, self._tally)
        self.local_queue = local_queue
        self.local_handoffs = local_handoffs
        self.fence_scale = FENCE_SCALE if local_handoffs else 1

    @property
    def commands(self) -> int:
        """Requests sent so far."""
        return self._tally.commands

    @property
    def events(self) -> int:
        """Watch events received so far."""
        return self._tally.events

    # Taking a place

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        """As the protocol says. A session that expires while waiting costs the place, not the wait.

        :raises ValueError: the servers do not allow a session as long as this TTL.
        """
        grant = await self._enter(claim, reserve, patient=True)
        assert grant is not None
        return grant

    async def try_acquire(self, claim: Claim) -> Grant | None:
        grant = await self._enter(claim, 0, patient=False)
        if grant is None:
            await self.release(claim)
        return grant

    async def _enter(self, claim: Claim, reserve: int, *, patient: bool) -> Grant | None:
        self._places[claim.owner] = place = Place(claim, self._chroot)
        try:
            return await self._take(place, reserve, patient=patient)
        except BackendError as error:
            if place.sent:  # whatever failed now, the node may have been made before
                error.definite = False
            if error.definite:  # then nobody calls release
                self._forget(place)
            raise

    async def _take(self, place: Place, reserve: int, *, patient: bool) -> Grant | None:
        while True:
            try:
                if place.session is None:
                    place.enter(self._sessions.for_ttl(place.claim.ttl))
                session = place.session
                assert session is not None
                wire = await session.wire()
                _check_ttl(place.claim, session)
                noted = time.monotonic()
                queue = await (self._queues.join(place, wire) if place.node is None else look(place, wire))
                assert place.node is not None
                ahead = queue.ahead_of(place.node, place.permits)
                if not ahead:
                    # A stall of our own may have used the lease up: then ask again.
                    if time.monotonic() < noted + validity(place.claim.ttl):
                        return self._granted(place, noted, reserve)
                elif not patient:
                    return None
                else:
                    await any_passed(session, wire, [f"{place.parent}/{node}" for node in ahead])
            except (NotQueued, SessionExpiredError):
                place.leave()  # the node is gone, taken away or with its session: queue up again
            except _UNCERTAIN:
                pass  # the session may have survived, and the node with it
            except ZookeeperError as error:
                raise place.failure(error) from None

    def _granted(self, place: Place, noted: float, reserve: int) -> Grant:
        claim = place.claim
        place.granted = True
        self._arm(place, noted)
        expires_at = noted + validity(claim.ttl)
        fence = place.zxid * self.fence_scale
        if self.fence_scale == 1:
            return Grant(claim, fence, expires_at)
        if fence + FENCE_SCALE > _MAX_FENCE:
            raise BackendError(
                "this ensemble has had too many leader elections for scaled fences: set local_handoffs=0"
            )
        return Grant(claim, fence, expires_at, min(reserve, FENCE_SCALE - 1))

    # Holding it

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        noted = time.monotonic()
        places = [self._places.get(grant.claim.owner) for grant in grants]
        states = await renewed(places, self._chroot + ROOT)
        for place, state in zip(places, states, strict=True):
            if state is LeaseState.RENEWED and place is not None and place.granted:
                self._arm(place, noted)
        return states

    def _arm(self, place: Place, noted: float) -> None:
        """Give the lock up when its TTL passes without a renewal: the session lives on for others."""
        if place.timer is not None:
            place.timer.cancel()
        delay = noted + place.claim.ttl - time.monotonic()
        place.timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._lapse, place)

    def _lapse(self, place: Place) -> None:
        if self._places.get(place.claim.owner) is place:
            place.lapsed = True
            task = asyncio.get_running_loop().create_task(
                self._drop(place.claim), name="asyncdlock lapsed lease"
            )
            self._lapsing.add(task)
            task.add_done_callback(self._lapsing.discard)

    async def _drop(self, claim: Claim) -> None:
        with contextlib.suppress(BackendError):  # then its session ends, and the node with it
            await self.release(claim)

    # Leaving

    async def release(self, claim: Claim) -> bool:
        """As the protocol says: the node is found by its owner when its name is not known.

        A cancellation or an error leaves open whether the node is gone; calling again finds out.
        """
        place = self._places.pop(claim.owner, None)
        if place is None:
            place = Place(claim, self._chroot)
            place.sent = place.owned = True
        else:
            place.stop()
        removed = False
        try:
            if place.sent:
                removed = await self._remove(place)
        except BaseException:
            self._keep_for_later(place)
            raise
        place.leave()
        return removed and place.owned

    def _keep_for_later(self, place: Place) -> None:
        """Somebody may call release again; after a TTL nobody does."""
        owner = place.claim.owner
        self._places[owner] = place
        place.timer = asyncio.get_running_loop().call_later(place.claim.ttl, self._forget, place)

    def _forget(self, place: Place) -> None:
        if self._places.get(place.claim.owner) is place:
            del self._places[place.claim.owner]
            place.leave()

    async def _remove(self, place: Place) -> bool:
        """Delete every node of the claim; False when there was none.

        :raises BackendError: the servers failed, or it cannot be known which of the two it was.
        """
        while True:
            session = place.session or self._sessions.for_ttl(place.claim.ttl)
            try:
                wire = await session.wire()
                if place.node is not None:
                    nodes = [place.node]
                else:
                    nodes = (await look(place, wire)).named(place.prefix)
                if await _delete(place, wire, nodes):
                    return True
                if place.unanswered and place.session is None:
                    raise place.unknown()
                # A deletion whose reply was lost has happened if the node is gone while its session lives:
                # nobody else deletes it, unless its holder let it lapse.
                return place.unanswered and not place.lapsed
            except SessionExpiredError:
                if place.session is None:
                    continue
                if place.unanswered:
                    place.unanswered = False  # from now on it is certain that nothing is left
                    raise place.unknown() from None
                return False
            except _UNCERTAIN:
                pass
            except ZookeeperError as error:
                raise place.failure(error) from None

    async def raise_fence(self, key: str, above: int) -> None:
        """:raises LockError: always."""
        raise LockError(
            f"the fence of {key!r} cannot be raised above {above}: ZooKeeper's transaction ids are its own. "
            "Lower what the resource remembers, or move the ensemble's data instead of starting an empty one"
        )

    async def aclose(self) -> None:
        """End every session: no node of this client remains."""
        for task in self._lapsing:
            task.cancel()
        if self._lapsing:
            await asyncio.wait(tuple(self._lapsing))
        for place in self._places.values():
            if place.timer is not None:
                place.timer.cancel()
        self._places.clear()
        await self._sessions.aclose()


def _check_ttl(claim: Claim, session: Session) -> None:
    if claim.ttl > session.timeout + 0.001:  # servers count milliseconds
        raise ValueError(
            f"a ttl of {claim.ttl:g} s is too long: these ZooKeeper servers end a session after "
            f"{session.timeout:g} s. Shorten it, or raise their maxSessionTimeout"
        )


async def _delete(place: Place, wire: Wire, nodes: Sequence[str]) -> bool:
    """Whether any of `nodes` was there; `place.unanswered` stays true when the answer did not come."""
    before = place.unanswered
    place.unanswered = before or bool(nodes)
    removed = False
    for request in [wire.send(Delete(f"{place.parent}/{node}", _ANY_VERSION)) for node in nodes]:
        with contextlib.suppress(NoNodeError):
            await request
            removed = True
    place.unanswered = before
    return removed
