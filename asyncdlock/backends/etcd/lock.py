"""The lock: who owns it, who waits for it, and how either gives it up."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from asyncdlock.backends.etcd import requests
from asyncdlock.backends.etcd.connection import EtcdConnection
from asyncdlock.backends.etcd.inspection import InspectedEtcd
from asyncdlock.backends.etcd.lease import Lease, LeasePool
from asyncdlock.backends.etcd.maintenance import LeaseMaintenance
from asyncdlock.backends.etcd.place import EtcdPlace, lease_name
from asyncdlock.backends.etcd.queue import LockQueue
from asyncdlock.backends.etcd.requests import QueueKeys
from asyncdlock.backends.etcd.settings import Settings
from asyncdlock.backends.etcd.transactions import TransactionBatcher, TxnOutcome
from asyncdlock.backends.etcd.watch import DeletionWatcher
from asyncdlock.errors import BackendError, LockError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

FENCE_SCALE = 1024
"""With local hand-off a fence is ModRevision × this: room for the fences that a holder passes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts of one client."""

    commands: int
    """Requests and stream messages sent."""
    transactions: int
    """Operations on locks; one request can carry many."""
    watch_events: int
    """Deletions that the server told us of."""
    watches: int
    """Watches open now."""
    leases: int
    """Leases in use or kept for the next use now."""
    failovers: int
    """How often another member took over."""


class EtcdBackend(InspectedEtcd):
    """Locks as etcd's own clients keep them. docs/backends/etcd.md tells how and why."""

    name = "etcd"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.capabilities: Capabilities = Capabilities(
            fencing=True,
            fifo=True,
            push_wakeup=True,
            interprocess=True,
            min_ttl=float(settings.min_ttl),
            ttl_step=1.0,
            shared=True,
            semaphore=True,
            inspection=True,
        )
        self.local_queue: bool = settings.local_queue
        self.local_handoffs: int = settings.local_handoffs
        self._scale = FENCE_SCALE if settings.local_handoffs else 1
        self._places: dict[str, EtcdPlace] = {}
        self._leftovers: set[EtcdPlace] = set()
        self._connection = EtcdConnection(settings)
        self._transactions = TransactionBatcher(self._connection)
        self._watcher = DeletionWatcher(self._connection)
        self._leases = LeasePool(self._connection, self._lease_died)
        self._queue = LockQueue(self._leases, self._transactions, self._watcher, settings.prefix)
        self._maintenance = LeaseMaintenance(self._leases, self._transactions, self)

    @property
    def commands(self) -> int:
        """Requests and stream messages sent so far."""
        return self._connection.commands

    @property
    def endpoint(self) -> str:
        """`host:port` of the member that the next request goes to."""
        return self._connection.endpoint

    @property
    def stats(self) -> Stats:
        """What this client has done and has open."""
        return Stats(
            commands=self._connection.commands,
            transactions=self._transactions.submitted,
            watch_events=self._watcher.events,
            watches=len(self._watcher),
            leases=sum(1 for _ in self._leases),
            failovers=self._connection.failovers,
        )

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        """Take a place in the lock's queue and wait until it is the first.

        A place that is lost on the way (its lease expired: this process slept, or no member could
        be reached) is taken anew at the end of the queue. A cancelled wait leaves its place to
        `release` and nothing else.

        :raises BackendError: no member answered, or etcd refused.
        """
        place = self._open(claim)
        try:
            while not await self._queue.join_and_wait(place):
                self.gone(place)
                place = self._open(claim)
        except BackendError as error:
            raise self._failed(place, error) from None
        return self._grant(place, reserve)

    async def try_acquire(self, claim: Claim) -> Grant | None:
        """Take the lock if its queue is empty, in one transaction that otherwise writes nothing.

        While locks further down are held (`a/b` below `a`) it takes four at most.

        :raises BackendError: no member answered, or etcd refused.
        """
        place = self._open(claim)
        try:
            while (won := await self._queue.try_join(place)) is None:
                self.gone(place)
                place = self._open(claim)
            if not won and place.revision:
                await self._transactions.answer(self._give_up(place))
        except BackendError as error:
            raise self._failed(place, error) from None
        if not won:
            self.gone(place)
            return None
        return self._grant(place, 0)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        """One keep-alive for each lease, then one read of the keys, for all grants together.

        A living lease alone does not mean that the lock is still held: somebody may have deleted
        the key, and servers before the fix of etcd #20590 can confirm a lease that is being revoked.
        The read that follows tells. Never raises for a failed server; a cancellation leaves nothing
        behind.
        """
        sent = time.monotonic()
        places = [self._places.get(grant.claim.owner) for grant in grants]
        held = [place for place in places if place is not None and place.live]
        leases = {lease: self._leases.refresh(lease) for lease in {place.lease for place in held}}
        for answer in leases.values():
            await asyncio.shield(answer)
        states = {place.claim.owner: leases[place.lease].result() for place in held}
        states |= await self._queue.read(
            [place for place in held if states[place.claim.owner] is LeaseState.RENEWED]
        )
        return [self._renewed(place, sent, states) for place in places]

    async def release(self, claim: Claim) -> bool:
        """Give up the claim's place, whether it holds the lock, waits for it, or may not exist.

        A request of `acquire` that is still on its way is awaited first: gRPC keeps no order
        between calls. Cancelled, the release goes on in the background.

        :raises BackendError: no member answered. Calling again is safe; without that the place
            goes as soon as a member can be reached, at the latest when its lease expires.
        """
        place = self._places.get(claim.owner)
        if place is None:
            return False
        held = place.expires_at is not None
        place.left = True
        if place.joining is not None and not place.joining.done():
            if self._transactions.withdraw(place.joining):
                self.gone(place)
                return False
            try:
                await asyncio.wait({place.joining})
            except asyncio.CancelledError:
                place.joining.add_done_callback(lambda _: self._give_up(place))
                raise
        if place.lease.dead or place.joining is None:
            self.gone(place)
            return False
        if place.lapsed and place.leaving is not None and not place.leaving.done():
            # It is being taken away. Beside that a request of ours could seem to have done it.
            await self._transactions.answer(place.leaving)
            return False
        repeated = place.leaving is not None
        if (outcome := await self._transactions.answer(self._give_up(place))).reply.succeeded:
            return True
        # An earlier copy of the request may have done it. Nobody else deletes this key while the
        # lease lives, unless its holder let it lapse.
        doubt = (outcome.uncertain or repeated) and held and not place.lapsed
        return doubt and time.monotonic() < place.lease.expires_at

    async def raise_fence(self, key: str, above: int) -> None:
        """Not possible: the store's revision is the fence.

        :raises LockError: always.
        """
        raise LockError(
            "etcd's fences are revisions of its store and cannot be raised; restore a backup with "
            "`etcdutl snapshot restore --bump-revision N --mark-compacted`"
        )

    async def aclose(self) -> None:
        """Revoke all leases, with every key that hangs on them, and close the connection.

        Members that do not answer in time are left to expire the leases by themselves.
        """
        await self._maintenance.aclose()
        await self._watcher.aclose()
        await self._transactions.aclose()
        await self._leases.aclose()
        await self._connection.aclose()
        self._places.clear()
        self._leftovers.clear()

    def places(self) -> Sequence[EtcdPlace]:
        """Every claim that this client has made and not given up, or not known to be gone."""
        return tuple(self._places.values())

    def leftovers(self) -> Sequence[EtcdPlace]:
        """Places that were given up, where a late copy of a request may yet put a key."""
        return tuple(self._leftovers)

    def give_up(self, place: EtcdPlace) -> None:
        """The holder did not renew its lock in time, or an earlier attempt to leave failed: take it away."""
        place.lapsed = place.lapsed or not place.left
        if place.lease.dead:
            self.gone(place)
        else:
            self._give_up(place)

    def gone(self, place: EtcdPlace) -> None:
        """Nothing of the place is on the server."""
        if self._places.get(place.claim.owner) is not place:
            return
        del self._places[place.claim.owner]
        if place.doubtful and not place.lease.dead:
            self._leftovers.add(place)
            self._maintenance.sweep_soon(place.lease)
        else:
            self._leases.give_back(place.lease, place.name)

    def _open(self, claim: Claim) -> EtcdPlace:
        lease = self._leases.lend(lease_name(claim), math.ceil(claim.ttl))
        place = EtcdPlace(claim, QueueKeys(self.settings.prefix, claim.key), lease)
        self._places[claim.owner] = place
        self._maintenance.lease_lent(lease)
        return place

    def _failed(self, place: EtcdPlace, error: BackendError) -> BackendError:
        """What to tell the caller, who gives up a claim only if something of it may be there."""
        certain = place.never_put
        if certain:
            self.gone(place)
        return type(error)(str(error), definite=certain)

    def _give_up(self, place: EtcdPlace) -> asyncio.Future[TxnOutcome]:
        """Delete the place's key if it is its owner's."""
        place.left = True
        request = requests.leave(place.key, place.owner)
        place.leaving = leaving = self._transactions.submit(request, deletes=True)
        self._queue.leaves(place, leaving)
        leaving.add_done_callback(partial(self._given_up, place))
        return leaving

    def _given_up(self, place: EtcdPlace, leaving: asyncio.Future[TxnOutcome]) -> None:
        # A copy of the request that comes late must not find the same claim again under the same key.
        # And if it failed, nobody may ask again: maintenance tries again.
        failed = leaving.exception() is not None
        if failed or leaving.result().uncertain:
            self._leases.retire(place.lease)
        if not failed:
            self.gone(place)

    def _lease_died(self, lease: Lease) -> None:
        """Everything under the lease is gone: waiters start over, what was leaving has left."""
        self._leftovers = {place for place in self._leftovers if place.lease is not lease}
        for place in tuple(self._places.values()):
            if place.lease is not lease:
                continue
            if place.left:
                self.gone(place)
            elif place.watch is not None:
                place.watch.wake()

    def _grant(self, place: EtcdPlace, reserve: int) -> Grant:
        assert place.expires_at is not None
        reserved = min(reserve, self._scale - 1)
        return Grant(place.claim, place.revision * self._scale, place.expires_at, reserved)

    def _renewed(self, place: EtcdPlace | None, sent: float, states: dict[str, LeaseState]) -> LeaseState:
        if place is None or not place.live:
            return LeaseState.LOST
        state = states.get(place.claim.owner, LeaseState.UNKNOWN)
        if state is LeaseState.RENEWED:
            place.expires_at = sent + validity(place.claim.ttl)
        return state
