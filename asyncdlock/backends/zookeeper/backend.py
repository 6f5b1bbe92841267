"""The Backend's verbs on ephemeral sequential nodes: join the queue, watch the one ahead, leave it.

Every request of a session is answered in order, and a write is answered after a majority has it. So

- joining sends the create and the listing in one write: one round trip when the lock is free;
- whoever is first in a listing that was read after its own create holds the lock. After a wait the listing
  follows a `sync`, which brings the server that answers up to date with the leader: a server that was cut
  off can not tell a waiter of an expired session that it is next;
- a release that follows a cancelled create in the same session sees what the create did.
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
from kazoo.protocol.serialization import Create2, Delete, GetData, Sync
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from asyncdlock.backends.zookeeper.names import LAST_SEQUENCE, ROOT, Contenders, sequence_of
from asyncdlock.backends.zookeeper.parents import Parents
from asyncdlock.backends.zookeeper.place import Place
from asyncdlock.backends.zookeeper.session import Ensemble, Session
from asyncdlock.backends.zookeeper.wire import Future, Tally, Wire
from asyncdlock.errors import BackendError, LockError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

FENCE_SCALE = 256
"""With local hand-off a fence is czxid * FENCE_SCALE + number of the hand-off."""
_MAX_FENCE = 2**63 - 1
_EPHEMERAL_SEQUENTIAL = 3
_ANY_VERSION = -1
_JOIN_TRIES = 5  # the server may remove an empty parent between its creation and its use

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
        self._acl = OPEN_ACL_UNSAFE if ensemble.credentials is None else CREATOR_ALL_ACL
        self._parents = Parents(chroot, self._acl, containers=containers)
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
                queue = await (self._join(place, wire) if place.node is None else self._look(place, wire))
                assert place.node is not None
                ahead = queue.ahead_of(place.node)
                if ahead is None:
                    # A stall of our own may have used the lease up: then ask again.
                    if time.monotonic() < noted + validity(place.claim.ttl):
                        return self._granted(place, noted, reserve)
                elif not patient:
                    return None
                else:
                    await self._passed(session, wire, f"{place.parent}/{ahead}")
            except (LookupError, SessionExpiredError):
                place.leave()  # the node is gone, taken away or with its session: queue up again
            except _UNCERTAIN:
                pass  # the session may have survived, and the node with it
            except ZookeeperError as error:
                raise place.failure(error) from None

    async def _join(self, place: Place, wire: Wire) -> Contenders:
        """Create the claim's node, or find the one that a lost reply left, and read the queue."""
        if place.sent:
            queue = await self._look(place, wire)
            nodes = queue.named(place.prefix)
            if nodes:
                _, stat = await wire.send(GetData(f"{place.parent}/{nodes[0]}", None))
                place.node, place.zxid = nodes[0], stat.czxid
                return queue
        path, owner = f"{place.parent}/{place.prefix}", place.claim.owner.encode()
        for _ in range(_JOIN_TRIES):
            self._parents.prepare(wire, place.parent)
            create = wire.send(Create2(path, owner, self._acl, _EPHEMERAL_SEQUENTIAL))
            listing = wire.list(place.parent)
            place.sent = True
            try:
                path, stat = await create
            except NoNodeError:
                place.sent = False
                await self._parents.make(wire, place.parent)
                continue
            place.node, place.zxid = path.rpartition("/")[2], stat.czxid
            if not 0 <= sequence_of(place.node) < LAST_SEQUENCE:
                raise BackendError(
                    f"the sequence numbers of {place.parent} are used up: delete that node once it is empty"
                )
            return await listing
        raise BackendError(
            f"cannot create {place.parent} in ZooKeeper: create it, or allow this user to", definite=True
        )

    async def _look(self, place: Place, wire: Wire) -> Contenders:
        """The queue as the leader knows it, not as a server that lags behind does."""
        synced = wire.send(Sync(place.parent))
        try:
            queue = await wire.list(place.parent)
        except NoNodeError:
            queue = Contenders(())
        await synced
        return queue

    async def _passed(self, session: Session, wire: Wire, path: str) -> None:
        """Return when the contender at `path` may be gone. A cancellation leaves no watch behind."""
        event: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def watcher(_: bool) -> None:
            if not event.done():
                event.set_result(None)

        session.watch(path, watcher)
        try:
            # Not `exists`: that would leave a watch on a node that is already gone, and never comes back.
            await wire.send(GetData(path, True))
            await event
        except NoNodeError:
            pass
        except asyncio.CancelledError:
            session.take_back(path, watcher)
            raise
        finally:
            session.unwatch(path, watcher)

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
        syncs: dict[Session, Future] = {}
        asked: list[tuple[int, Place, list[Future]]] = []
        noted = time.monotonic()
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
            answers = [syncs[session]]
            if not place.guarded:
                place.guarded = True
                session.watch(place.path, place.unguard)
                answers.append(wire.send(GetData(place.path, True)))
            asked.append((index, place, answers))
        if asked:
            await asyncio.wait({answer for _, _, answers in asked for answer in answers})
        for index, place, answers in asked:
            states[index] = _lease_state(answers)
            if states[index] is LeaseState.RENEWED and place.granted:
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
        if place.guarded and place.session is not None:
            place.session.unwatch(place.path, place.unguard)
        return await self._remove(place) and owned

    async def _remove(self, place: Place) -> bool:
        unanswered = False
        while True:
            session = place.session or self._session(place.claim.ttl)
            try:
                wire = await session.wire()
                if place.node is not None:
                    nodes = [place.node]
                else:
                    nodes = (await self._look(place, wire)).named(place.prefix)
                requests = [wire.send(Delete(f"{place.parent}/{node}", _ANY_VERSION)) for node in nodes]
                if requests:
                    await asyncio.wait(requests)
                errors = [request.exception() for request in requests]
                unanswered |= any(isinstance(error, _UNCERTAIN) for error in errors)
                for error in errors:
                    if error is not None and not isinstance(error, NoNodeError):
                        raise error
                # A deletion whose reply was lost has happened if the node is gone while its session lives:
                # nobody else deletes it.
                return None in errors or unanswered
            except SessionExpiredError:
                if place.session is not None:
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
    return max(ttl, round(math.ceil(ttl / step - 1e-9) * step, 3))


def _check_ttl(claim: Claim, session: Session) -> None:
    if claim.ttl > session.timeout:
        raise ValueError(
            f"a ttl of {claim.ttl:g} s is too long: these ZooKeeper servers end a session after "
            f"{session.timeout:g} s. Shorten it, or raise their maxSessionTimeout"
        )


def _lease_state(answers: list[Future]) -> LeaseState:
    for answer in answers:
        error = answer.exception()
        if isinstance(error, NoNodeError | SessionExpiredError):
            return LeaseState.LOST
        if error is not None:
            return LeaseState.UNKNOWN
    return LeaseState.RENEWED
