"""The Backend's verbs on ephemeral sequential nodes: join the queue, watch the one ahead, leave it.

A session answers its requests in order. So a release that follows a cancelled create in the same session
sees what the create did, and nothing needs to be waited for before it is undone.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence

from kazoo.exceptions import (
    ConnectionLoss,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import Delete, GetData, Sync
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from asyncdlock.backends.zookeeper.names import ROOT, NotQueued
from asyncdlock.backends.zookeeper.parents import Parents
from asyncdlock.backends.zookeeper.place import Place
from asyncdlock.backends.zookeeper.queues import Queues, look, passed
from asyncdlock.backends.zookeeper.session import Ensemble, Session
from asyncdlock.backends.zookeeper.wire import Future, Tally
from asyncdlock.errors import BackendError, LockError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

FENCE_SCALE = 256
"""With local hand-off a fence is czxid * FENCE_SCALE + number of the hand-off."""
_MAX_FENCE = 2**63 - 1
_ANY_VERSION = -1

# The connection went while the request was under way: it may have happened. A session that was opened on
# another server meanwhile gives the same answer.
_UNCERTAIN = (ConnectionLoss, SessionMovedError)


class ZooKeeperBackend:
    """Locks in one ensemble. A TTL is the timeout of a session; claims of one TTL share one session."""

    name = "zookeeper"
    capabilities = Capabilities(fencing=True, fifo=True, push_wakeup=True, shared=True, min_ttl=0.2)

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        chroot: str = "",
        containers: bool = True,
        local_queue: bool = True,
        local_handoffs: int = 0,
    ) -> None:
        self._ensemble = ensemble
        self._chroot = chroot
        acl = OPEN_ACL_UNSAFE if ensemble.credentials is None else CREATOR_ALL_ACL
        self._queues = Queues(Parents(chroot, acl, containers=containers), acl)
        self._sessions: dict[float, Session] = {}
        self._places: dict[str, Place] = {}
        self._lapsing: set[asyncio.Task[None]] = set()
        self._tally = Tally()
        self.local_queue = local_queue
        self.local_handoffs = local_handoffs

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
            if error.definite:  # then nobody calls release
                self._places.pop(claim.owner, None)
            raise

    async def _take(self, place: Place, reserve: int, *, patient: bool) -> Grant | None:
        while True:
            try:
                session = place.session or self._session(place.claim.ttl)
                wire = await session.wire()
                _check_ttl(place.claim, session)
                place.session = session
                noted = time.monotonic()
                queue = await (self._queues.join(place, wire) if place.node is None else look(place, wire))
                assert place.node is not None
                ahead = queue.ahead_of(place.node)
                if ahead is None:
                    # A stall of our own may have used the lease up: then ask again.
                    if time.monotonic() < noted + validity(place.claim.ttl):
                        return self._granted(place, noted, reserve)
                elif not patient:
                    return None
                else:
                    await passed(session, wire, f"{place.parent}/{ahead}")
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
        if not self.local_handoffs:
            return Grant(claim, place.zxid, expires_at)
        fence = place.zxid * FENCE_SCALE
        if fence + FENCE_SCALE > _MAX_FENCE:
            raise BackendError(
                "this ensemble has had too many leader elections for scaled fences: set local_handoffs=0"
            )
        return Grant(claim, fence, expires_at, min(reserve, FENCE_SCALE - 1))

    # Holding it

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        """One `sync` per session answers for all its grants, plus one look at each node not guarded yet.

        A session that is without a server is UNKNOWN at once; waiting is the caller's business.
        """
        states = [LeaseState.LOST] * len(grants)
        noted = time.monotonic()
        syncs: dict[Session, Future] = {}
        looks: dict[Place, Future] = {}
        asked: list[tuple[int, Place, Session]] = []
        for index, grant in enumerate(grants):
            place = self._places.get(grant.claim.owner)
            if place is None or not place.granted or place.session is None or place.session.expired:
                continue
            states[index] = LeaseState.UNKNOWN
            session, wire = place.session, place.session.wire_now()
            if wire is None:
                continue
            if session not in syncs:
                syncs[session] = wire.send(Sync(self._chroot + ROOT))
            if not place.guarded:
                place.guarded = True
                session.watch(place.path, place.unguard)
                looks[place] = wire.send(GetData(place.path, True))
            asked.append((index, place, session))
        if not asked:
            return states
        try:
            await asyncio.wait([*syncs.values(), *looks.values()])
        finally:
            for place, look in looks.items():
                if not look.done() or look.exception() is not None:
                    place.guarded = False
        touched = []
        for index, place, session in asked:
            states[index] = _lease_state(syncs[session], looks.get(place))
            if states[index] is not LeaseState.RENEWED or not place.granted:
                continue
            if place.guarded:
                self._arm(place, noted)
            else:  # an event for the node came before the answer: see what happened to it
                touched.append(index)
        if touched:
            for index, state in zip(touched, await self.renew([grants[i] for i in touched]), strict=True):
                states[index] = state
        return states

    def _arm(self, place: Place, noted: float) -> None:
        """Give the lock up when its TTL passes without a renewal: the session lives on for others."""
        if place.timer is not None:
            place.timer.cancel()
        delay = noted + place.claim.ttl - time.monotonic()
        place.timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._lapse, place)

    def _lapse(self, place: Place) -> None:
        if self._places.get(place.claim.owner) is place:
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

        A cancellation leaves open whether the node is gone; calling again is safe.
        """
        place = self._places.pop(claim.owner, None)
        owned = True
        if place is None:
            place = Place(claim, self._chroot)
            place.sent = True
        elif place.sent:
            owned = place.granted
        else:
            return False
        place.granted = False
        if place.timer is not None:
            place.timer.cancel()
        if place.session is not None:
            place.session.unwatch(place.path, place.unguard)
        return await self._remove(place) and owned

    async def _remove(self, place: Place) -> bool:
        """Delete every node of the claim; False when there was none."""
        unanswered = False
        while True:
            session = place.session or self._session(place.claim.ttl)
            try:
                wire = await session.wire()
                if place.node is not None:
                    nodes = [place.node]
                else:
                    nodes = (await look(place, wire)).named(place.prefix)
                removed = False
                for request in [wire.send(Delete(f"{place.parent}/{node}", _ANY_VERSION)) for node in nodes]:
                    removed |= await _deleted(request)
                # A deletion whose reply was lost has happened if the node is gone while its session lives:
                # nobody else deletes it.
                return removed or unanswered
            except SessionExpiredError:
                if place.session is not None:
                    return False
            except _UNCERTAIN:
                unanswered = place.session is not None and place.node is not None
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
        sessions = [session.aclose() for session in self._sessions.values()]
        self._sessions.clear()
        await asyncio.gather(*sessions)

    def _session(self, ttl: float) -> Session:
        timeout = _session_timeout(ttl)
        session = self._sessions.get(timeout)
        if session is None or session.over:
            self._sessions[timeout] = session = Session(self._ensemble, timeout, self._tally)
        return session


def _session_timeout(ttl: float) -> float:
    """The TTL rounded up to two significant digits: programs that compute their TTLs share sessions too."""
    step = 10.0 ** (math.floor(math.log10(ttl)) - 1)
    return round(math.ceil(ttl / step - 1e-9) * step, 3)


def _check_ttl(claim: Claim, session: Session) -> None:
    if claim.ttl > session.timeout + 0.001:  # servers count milliseconds
        raise ValueError(
            f"a ttl of {claim.ttl:g} s is too long: these ZooKeeper servers end a session after "
            f"{session.timeout:g} s. Shorten it, or raise their maxSessionTimeout"
        )


async def _deleted(request: Future) -> bool:
    try:
        await request
    except NoNodeError:
        return False
    return True


def _lease_state(synced: Future, look: Future | None) -> LeaseState:
    for error in (synced.exception(), look.exception() if look is not None else None):
        if isinstance(error, NoNodeError | SessionExpiredError):
            return LeaseState.LOST
        if error is not None:
            return LeaseState.UNKNOWN
    return LeaseState.RENEWED
