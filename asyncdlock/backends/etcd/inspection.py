"""Inspection: who holds a lock in etcd and who waits for it, which locks there are, and taking one back."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from aetcd import rpc

from asyncdlock.backends.etcd import requests
from asyncdlock.backends.etcd.connection import LEASE_TIME_TO_LIVE, TXN, EtcdConnection
from asyncdlock.backends.etcd.queue import LockQueue
from asyncdlock.backends.etcd.requests import QueueKeys
from asyncdlock.backends.etcd.settings import Settings
from asyncdlock.backends.etcd.transactions import MAX_OPERATIONS
from asyncdlock.types import LockInfo, Waiter, holding_together


class InspectedEtcd:
    """The operator's part of the backend. Leases carry the labels of their clients: `requests.label_key`."""

    settings: Settings
    _connection: EtcdConnection
    _queue: LockQueue
    _scale: int

    @property
    def label(self) -> str:
        return self._queue.label

    @label.setter
    def label(self, label: str) -> None:
        self._queue.label = label

    async def inspect(self, key: str) -> LockInfo:
        """As the protocol says. etcd keeps no times: `since` is not known. A lease counts whole seconds."""
        places = await self._queue_of(key)
        if not places:
            return LockInfo(key=key, held=False)
        holder, *others = await self._named(places)
        count = self._holding(key, places)
        first = places[0]
        question = rpc.LeaseTimeToLiveRequest(ID=first.lease)
        left = (
            (await self._connection.call(LEASE_TIME_TO_LIVE, question)).message.TTL if first.lease else None
        )
        return LockInfo(
            key=key,
            held=True,
            owner=holder.owner,
            label=holder.label,
            lease_left=None if left is None else float(max(0, left)),
            fence=first.create_revision * self._scale,
            last_fence=(first.create_revision + 1) * self._scale - 1,
            beside=tuple(others[: count - 1]),
            waiters=tuple(others[count - 1 :]),
        )

    async def force_release(self, key: str, above: int) -> bool:
        """As the protocol says. The next fence is that of a place that was taken later, and so above."""
        places = await self._queue_of(key)
        evicted = False
        for place in places[: self._holding(key, places)]:
            reply = await self._connection.call(TXN, requests.evict(place.key, place.create_revision))
            # Sent again after a lost reply, it finds nothing: whoever held the lock does so no more.
            evicted = evicted or bool(reply.message.succeeded) or reply.uncertain
        return evicted

    async def keys(self, start: str) -> AsyncIterator[str]:
        below = f"{self.settings.prefix}/".encode()
        found = await self._range(requests.everything_below(below + start.encode()))
        names = dict.fromkeys(kv.key[len(below) :].rpartition(b"/")[0] for kv in found)
        for name in names:
            if name:  # else it is a label
                yield name.decode(errors="replace")

    async def _queue_of(self, key: str) -> list[Any]:
        """The queue, in order; the first one holds the lock."""
        queue = QueueKeys(self.settings.prefix, key)
        return [kv for kv in await self._range(queue.in_order()) if queue.owns(kv.key)]

    def _holding(self, key: str, places: Sequence[Any]) -> int:
        queue = QueueKeys(self.settings.prefix, key)
        return holding_together([queue.beside(kv.key) for kv in places])

    async def _range(self, request: Any) -> Sequence[Any]:
        reply = await self._connection.call(TXN, request)
        found: Sequence[Any] = reply.message.responses[0].response_range.kvs
        return found

    async def _named(self, places: Sequence[Any]) -> list[Waiter]:
        labels: dict[int, str] = {}
        leases = list(dict.fromkeys(kv.lease for kv in places))
        for begin in range(0, len(leases), MAX_OPERATIONS):
            chunk = leases[begin : begin + MAX_OPERATIONS]
            keys = [requests.label_key(self.settings.prefix, lease) for lease in chunk]
            reply = await self._connection.call(TXN, requests.read(keys))
            for lease, response in zip(chunk, reply.message.responses, strict=True):
                for kv in response.response_range.kvs:
                    labels[lease] = kv.value.decode(errors="replace")
        named = []
        for kv in places:
            owner, _, label = kv.value.decode(errors="replace").partition(" ")
            named.append(Waiter(owner=owner or None, label=label or labels.get(kv.lease)))
        return named
