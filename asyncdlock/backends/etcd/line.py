"""Standing in line: take a place in a lock's queue, wait behind the one in front, check before claiming."""

import asyncio
import time
from typing import Any

from asyncdlock.backends.etcd import requests
from asyncdlock.backends.etcd.failures import LeaseNotFound
from asyncdlock.backends.etcd.lease import Leases
from asyncdlock.backends.etcd.place import Place
from asyncdlock.backends.etcd.requests import Standing, standing
from asyncdlock.backends.etcd.transactions import Outcome, Transactions
from asyncdlock.backends.etcd.watch import Watch, Watcher
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import LeaseState, validity

Refreshing = asyncio.Future[LeaseState] | None


class Line:
    """How a place comes to be the first of its queue."""

    def __init__(self, leases: Leases, transactions: Transactions, watcher: Watcher) -> None:
        self._leases = leases
        self._transactions = transactions
        self._watcher = watcher

    async def queue_up(self, place: Place) -> bool:
        """Join the queue and wait for the first place. One round trip when the queue is empty.

        `False` when the place was lost on the way. Cancelled, it leaves the key (or a request that
        puts it) to be given up by the caller.

        :raises BackendError: no member answered, or etcd refused.
        """
        await self._leases.ready(place.lease)
        refreshing = self._leases.freshen(place.lease)
        outcome = await self._put(place, place.queue.join(place.key, place.owner, place.lease.id))
        if outcome is None:
            return False
        now = await self._joined(place, outcome)
        while now.revision and now.ahead is not None:
            await self._wait_for_deletion(place, now.ahead, now.read_at)
            if place.lease.dead:
                return False
            # The wait says nothing about our own key: the lease may have expired meanwhile, and who
            # returns on the deletion alone holds a lock that is somebody else's (Jepsen, etcd 3.4.3).
            refreshing = self._leases.freshen(place.lease)
            now = await self._look(place, now.revision)
        place.revision = now.revision
        return bool(now.revision) and await self._confirm(place, refreshing)

    async def slip_in(self, place: Place) -> bool | None:
        """Take the first place of an empty queue; `False` when somebody is there, `None` when lost.

        :raises BackendError: no member answered, or etcd refused.
        """
        await self._leases.ready(place.lease)
        refreshing = self._leases.freshen(place.lease)
        outcome = await self._put(place, place.queue.join_if_empty(place.key, place.owner, place.lease.id))
        while outcome is not None:
            reply = outcome.reply
            if reply.succeeded:
                place.revision = reply.responses[0].response_put.header.revision
                return await self._confirm(place, refreshing) or None
            own, others = (response.response_range.kvs for response in reply.responses)
            if own and own[0].value == place.owner:
                # An earlier copy of this request has won already.
                place.revision = own[0].create_revision
                return await self._confirm(place, refreshing) or None
            if any(place.queue.owns(kv.key) for kv in others):
                return False
            # Only places of locks further down (`a/b` below `a`) are in sight.
            everything = await asyncio.shield(self._transactions.submit(place.queue.look()))
            if any(place.queue.owns(kv.key) for kv in _range(everything).kvs):
                return False
            request = place.queue.join_if_unchanged(
                place.key, place.owner, place.lease.id, everything.revision
            )
            outcome = await self._put(place, request)
        return None

    async def _put(self, place: Place, request: Any) -> Outcome | None:
        """Send the transaction that puts the place's key; `None` when its lease is gone."""
        lease = place.lease
        place.pending = self._transactions.submit(request, joins=place.claim.key)
        try:
            outcome = await asyncio.shield(place.pending)
        except LeaseNotFound:
            self._leases.bury(lease)
            return None
        except BackendError as error:
            if not error.definite:
                self._leases.retire(lease)
            raise
        if outcome.uncertain:
            self._leases.retire(lease)
        return outcome

    async def _joined(self, place: Place, outcome: Outcome) -> Standing:
        """Where the place stands after the transaction that put it."""
        reply = outcome.reply
        if reply.succeeded:
            now = standing(place.queue, place.key, reply.responses[1].response_range, outcome.revision)
            if now.complete:
                return now
            return await self._look(place, reply.responses[0].response_put.header.revision)
        found = reply.responses[0].response_range.kvs
        if found and found[0].value == place.owner:
            # An earlier copy of this request has queued us already.
            return await self._look(place, found[0].create_revision)
        # A key that nobody here knows of has our name: what is left of a lost request.
        self._leases.retire(place.lease)
        return Standing(0, None, outcome.revision)

    async def _look(self, place: Place, revision: int) -> Standing:
        """Read one's own place, created at `revision`, and the one in front of it."""
        for limit in (2, 0):
            request = place.queue.look(limit=limit, up_to=revision)
            outcome = await asyncio.shield(self._transactions.submit(request))
            now = standing(place.queue, place.key, _range(outcome), outcome.revision)
            if now.complete:
                break
        return now if now.revision == revision else Standing(0, None, outcome.revision)

    async def _wait_for_deletion(self, place: Place, key: bytes, revision: int) -> None:
        place.watch = self._watcher.open(key, after=revision, on_late=self._check)
        try:
            await place.watch.gone
        finally:
            self._watcher.close(place.watch)
            place.watch = None

    def _check(self, watch: Watch) -> None:
        """See whether the key is gone already. One key, not the queue: that is long when many wait."""

        def checked(read: asyncio.Future[Outcome]) -> None:
            if not read.cancelled() and read.exception() is None:
                found = _range(read.result()).kvs
                if not found or found[0].create_revision > watch.after:
                    watch.wake()

        self._transactions.submit(requests.read([watch.key])).add_done_callback(checked)

    async def _confirm(self, place: Place, refreshing: Refreshing) -> bool:
        """The place is first; see to it that its lease is good for a while. `False` when it is gone."""
        lease = place.lease
        for _ in range(3):
            if refreshing is not None:
                await asyncio.shield(refreshing)
            if lease.dead:
                return False
            expires_at = lease.refreshed_at + validity(place.claim.ttl)
            if expires_at - time.monotonic() > place.claim.ttl / 2:
                place.expires_at = expires_at
                return True
            refreshing = self._leases.refresh(lease)
        raise BackendUnavailable("etcd did not confirm the lease in time", definite=False)


def _range(outcome: Outcome) -> Any:
    return outcome.reply.responses[0].response_range
