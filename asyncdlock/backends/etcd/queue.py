"""The queue of a lock: join it, wait behind the place in front, check before claiming."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from asyncdlock.backends.etcd import requests
from asyncdlock.backends.etcd.failures import LeaseNotFound, NoSpace
from asyncdlock.backends.etcd.lease import LeasePool
from asyncdlock.backends.etcd.place import EtcdPlace
from asyncdlock.backends.etcd.requests import Position, in_front, position
from asyncdlock.backends.etcd.transactions import MAX_OPERATIONS, TransactionBatcher, TxnOutcome
from asyncdlock.backends.etcd.watch import DeletionWatch, DeletionWatcher
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import LeaseState, validity

_ALL = 0  # of a range: no limit
_REMEMBERED = 1000  # holders; more than wait at any moment, and little to keep

Refreshing = asyncio.Future[LeaseState] | None


class LockQueue:
    """How a place comes to be the first of its queue."""

    def __init__(
        self, leases: LeasePool, transactions: TransactionBatcher, watcher: DeletionWatcher, prefix: str
    ) -> None:
        self.label = ""
        """What this client is called."""
        self._prefix = prefix
        self._leases = leases
        self._transactions = transactions
        self._watcher = watcher
        self._held: OrderedDict[bytes, int] = OrderedDict()
        """Places of this client that lately were the first, and when each was taken."""
        self._behind: dict[bytes, EtcdPlace] = {}
        """Who of this client waits for which place to go, both wanting the lock alone."""
        self._waiting: Counter[str] = Counter()
        """How many of this client wait, for each lock."""

    async def join_and_wait(self, place: EtcdPlace) -> bool:
        """Join the queue and wait for the first place. One round trip when the queue is empty.

        `False` when the place was lost on the way. Cancelled, it leaves the key (or a request that
        puts it) to be given up by the caller.

        :raises BackendError: no member answered, or etcd refused.
        """
        await self._leases.ready(place.lease)
        # Along with the request. Behind others of this client it would be stale again when its turn comes.
        refreshing = None if place.claim.key in self._waiting else self._leases.freshen(place.lease)
        limit = 2 if place.permits is None else _ALL
        join = place.queue.join(place.key, place.owner, place.lease.id, limit=limit)
        outcome = await self._put(place, join)
        if outcome is None:
            return False
        now = await self._joined(place, outcome)
        if not now.ahead:
            refreshing = refreshing or self._leases.freshen(place.lease)
        while now.revision and now.ahead:
            holder_left = await self._wait_for_deletion(place, now)
            if place.lease.dead:
                return False
            # The wait says nothing about our own key: the lease may have expired meanwhile, and who
            # returns on the deletion alone holds a lock that is somebody else's (Jepsen, etcd 3.4.3).
            refreshing = self._leases.freshen(place.lease)
            now = await (self._look_at_own if holder_left else self._look)(place, now.revision)
        place.revision = now.revision
        return bool(now.revision) and await self._confirm(place, refreshing)

    async def try_join(self, place: EtcdPlace) -> bool | None:
        """Take the first place of an empty queue; `False` when somebody is there, `None` when lost.

        After `False` the place may be on the server, behind somebody else's, for the caller to give up.

        :raises BackendError: no member answered, or etcd refused.
        """
        await self._leases.ready(place.lease)
        refreshing = self._leases.freshen(place.lease)
        if place.permits is not None:
            return await self._try_join_if(place, refreshing)
        outcome = await self._put(place, place.queue.join_if_empty(place.key, place.owner, place.lease.id))
        if outcome is None:
            return None
        reply = outcome.reply
        if reply.succeeded:
            place.revision = reply.responses[0].response_put.header.revision
            return await self._confirm(place, refreshing) or None
        own, others = (response.response_range.kvs for response in reply.responses)
        if own and own[0].value == place.owner:
            # An earlier copy of this request has won already.
            place.revision = own[0].create_revision
            return await self._confirm(place, refreshing) or None
        if any(place.queue.has(kv) for kv in others):
            return False
        return await self._try_join_if(place, refreshing)

    async def _try_join_if(self, place: EtcdPlace, refreshing: Refreshing) -> bool | None:
        """The same for one of several holders, or with keys of locks further down (`a/b` below `a`) in sight.

        No comparison can tell a queue's own keys from theirs, nor readers from writers, and a range that they
        change all the time never stands still. So look, and only if the lock seems to be had join its queue:
        who then is not let in was overtaken.
        """
        everything = await self._transactions.answer(self._transactions.submit(place.queue.look()))
        there = [kv.key for kv in _range(everything).kvs if place.queue.has(kv) and kv.key != place.key]
        if there and (place.permits is None or in_front(place.queue, there, place.permits)):
            return False
        request = place.queue.join(place.key, place.owner, place.lease.id, limit=_ALL)
        outcome = await self._put(place, request)
        if outcome is None:
            return None
        now = await self._joined(place, outcome)
        place.revision = now.revision
        if not now.revision:
            return None
        if now.ahead:
            return False
        return await self._confirm(place, refreshing) or None

    async def read(self, held: Sequence[EtcdPlace]) -> dict[str, LeaseState]:
        """What the keys say of locks whose leases were renewed."""
        chunks = [held[start : start + MAX_OPERATIONS] for start in range(0, len(held), MAX_OPERATIONS)]
        reads = [self._transactions.submit(requests.read([place.key for place in chunk])) for chunk in chunks]
        states: dict[str, LeaseState] = {}
        for chunk, read in zip(chunks, reads, strict=True):
            try:
                try:
                    found = requests.found(await self._transactions.answer(read))
                except NoSpace:
                    found = await self._transactions.values([place.key for place in chunk])
            except BackendError:
                states |= dict.fromkeys((place.claim.owner for place in chunk), LeaseState.UNKNOWN)
                continue
            for place, value in zip(chunk, found, strict=True):
                owned = value == place.owner
                states[place.claim.owner] = LeaseState.RENEWED if owned else LeaseState.LOST
        return states

    async def _put(self, place: EtcdPlace, request: Any) -> TxnOutcome | None:
        """Send the transaction that puts the place's key; `None` when its lease is gone."""
        if not place.lease.told and self.label:
            self._leases.tell(place.lease, requests.tell(self._prefix, place.lease.id, self.label))
        place.joining = self._transactions.submit(request, joins=place.claim.key)
        # Not after the await: whoever waits there may be cancelled, and the request travels on.
        place.joining.add_done_callback(partial(self._note_doubt, place))
        try:
            return await self._transactions.answer(place.joining)
        except LeaseNotFound:
            self._leases.mark_dead(place.lease)
            return None

    def _note_doubt(self, place: EtcdPlace, joining: asyncio.Future[TxnOutcome]) -> None:
        """Retire a lease under which a copy of the request may still put a key."""
        if joining.cancelled():
            return
        error = joining.exception()
        certain = not joining.result().uncertain if error is None else getattr(error, "definite", False)
        if not certain:
            place.doubtful = True
            self._leases.retire(place.lease)

    async def _joined(self, place: EtcdPlace, outcome: TxnOutcome) -> Position:
        """Where the place stands after the transaction that put it."""
        reply = outcome.reply
        if reply.succeeded:
            queue = reply.responses[1].response_range
            now = position(place.queue, place.key, queue, outcome.revision, place.permits)
            if now.complete:
                return now
            return await self._look(place, reply.responses[0].response_put.header.revision)
        found = reply.responses[0].response_range.kvs
        if found and found[0].value == place.owner:
            # An earlier copy of this request has queued us already.
            return await self._look(place, found[0].create_revision)
        # A key that nobody here knows of has our name.
        self._leases.retire(place.lease)
        return Position(0, (), outcome.revision)

    async def _look(self, place: EtcdPlace, revision: int) -> Position:
        """Read one's own place, created at `revision`, and those in front of it."""
        for limit in (2, _ALL) if place.permits is None else (_ALL,):
            request = place.queue.look(limit=limit, up_to=revision)
            outcome = await self._transactions.answer(self._transactions.submit(request))
            now = position(place.queue, place.key, _range(outcome), outcome.revision, place.permits)
            if now.complete:
                break
        return now if now.revision == revision else Position(0, (), outcome.revision)

    async def _look_at_own(self, place: EtcdPlace, revision: int) -> Position:
        """The same for who stood right behind the holder: nobody else can be in front.

        A reading of the queue costs etcd time for everybody in it. And if the holder was of this client too,
        its release has brought the reading along.
        """
        outcome = None
        if place.relieved is not None:
            with suppress(BackendError):
                left, outcome = [await self._transactions.answer(one) for one in place.relieved]
                if not _after(left, outcome):
                    outcome = None
        if outcome is None:
            outcome = await self._transactions.answer(self._transactions.submit(requests.read([place.key])))
        own = _range(outcome).kvs
        there = bool(own) and own[0].create_revision == revision
        return Position(revision if there else 0, (), outcome.revision)

    async def _wait_for_deletion(self, place: EtcdPlace, now: Position) -> bool:
        """Return when one of those in front is gone, or when only a fresh read can tell.

        `True`: it had the lock.
        """
        watches = [self._watcher.open(key, after=now.read_at, on_late=self._check) for key in now.ahead]
        place.watch = watches[0]
        place.relieved = None
        self._waiting[place.claim.key] += 1
        if now.ahead_since:
            self._behind[now.ahead[0]] = place
        try:
            ended = [place.watch.gone]
            if len(watches) > 1:
                await asyncio.wait([watch.gone for watch in watches], return_when=asyncio.FIRST_COMPLETED)
                ended = [watch.gone for watch in watches if watch.gone.done()]
            deleted = [await gone for gone in ended]
            return all(deleted) and self._held.get(now.ahead[0]) == now.ahead_since
        finally:
            for watch in watches:
                self._watcher.close(watch)
            place.watch = None
            self._waiting[place.claim.key] -= 1
            if not self._waiting[place.claim.key]:
                del self._waiting[place.claim.key]
            if self._behind.get(now.ahead[0]) is place:
                del self._behind[now.ahead[0]]

    def leaves(self, place: EtcdPlace, leaving: asyncio.Future[TxnOutcome]) -> None:
        """The place is being given up; let who stands right behind it here know with the same answer.

        What deletes comes first in a request, so a reading that travels along already finds it gone. Should
        they not travel together after all, the revisions tell.
        """
        behind = self._behind.get(place.key)
        if behind is None or self._held.get(place.key) != place.revision:
            return
        self._leases.freshen(behind.lease)
        read = self._transactions.submit(requests.read([behind.key]))
        behind.relieved = leaving, read

        def answered(_: asyncio.Future[TxnOutcome]) -> None:
            answers = [one.result() for one in (leaving, read) if one.done() and not one.exception()]
            if len(answers) == 2 and _after(*answers) and behind.watch is not None:
                behind.watch.wake(deleted=True)

        leaving.add_done_callback(answered)
        read.add_done_callback(answered)

    def _check(self, watch: DeletionWatch) -> None:
        """See whether the key is gone already. One key, not the queue: that is long when many wait."""

        def checked(read: asyncio.Future[TxnOutcome]) -> None:
            if not read.cancelled() and read.exception() is None:
                found = _range(read.result()).kvs
                if not found or found[0].create_revision > watch.after:
                    watch.wake(deleted=True)

        self._transactions.submit(requests.read([watch.key])).add_done_callback(checked)

    async def _confirm(self, place: EtcdPlace, refreshing: Refreshing) -> bool:
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
                self._held[place.key] = place.revision
                if len(self._held) > _REMEMBERED:
                    self._held.popitem(last=False)
                return True
            refreshing = self._leases.refresh(lease)
        raise BackendUnavailable("etcd did not confirm the lease in time", definite=False)


def _after(left: TxnOutcome, read: TxnOutcome) -> bool:
    """Whether something was deleted, and then something was read."""
    return bool(left.reply.succeeded) and read.revision >= left.revision


def _range(outcome: TxnOutcome) -> Any:
    return outcome.reply.responses[0].response_range
