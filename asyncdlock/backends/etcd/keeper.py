"""Keeps leases alive while they are used, and takes away what must not live on with them.

A lease that serves many locks outlives each of them. So what would go by itself with a lease of
its own needs somebody who removes it:

- a lock whose holder let it lapse, while the lease is renewed for the others;
- the key of a request whose reply was lost, which may appear on the server long after its owner
  gave up. Such a lease is retired. It is revoked as soon as nobody needs it, and until then the
  keys on it are compared with what this client knows of.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from asyncdlock.backends.etcd import requests
from asyncdlock.backends.etcd.lease import Lease, Leases
from asyncdlock.backends.etcd.place import Place
from asyncdlock.backends.etcd.transactions import Transactions
from asyncdlock.errors import BackendError

# A client that takes a lock now and then finds its lease alive, and so needs one round trip.
_KEEP_IDLE = 30.0


class Register(Protocol):
    """Who knows the places."""

    def places(self) -> Sequence[Place]:
        """All of them."""
        ...

    def lapsed(self, place: Place) -> None:
        """This one was not renewed in time."""

    def gone(self, place: Place) -> None:
        """This one is not on the server (any more)."""


class Keeper:
    """One timer, and one task while there is something to remove."""

    def __init__(self, leases: Leases, transactions: Transactions, register: Register) -> None:
        self._leases = leases
        self._transactions = transactions
        self._register = register
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False
        self._sweeper: asyncio.Task[None] | None = None

    def mind(self, lease: Lease) -> None:
        """A lease is in use."""
        self._wake_at(time.monotonic() + _period(lease))

    async def aclose(self) -> None:
        """Stop keeping anything alive; finish what is being removed."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sweeper is not None:
            await self._sweeper

    def _wake_at(self, when: float) -> None:
        if self._closed or (self._timer is not None and when >= self._due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = when
        self._timer = asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        in_use: set[Lease] = set()
        wake: list[float] = []
        for place in self._register.places():
            if place.leaving:
                continue
            if place.expires_at is None:
                in_use.add(place.lease)
                if place.watch is not None and now >= place.lease.refreshed_at + place.lease.ttl:
                    # No member has answered for so long: a fresh read takes the place up again,
                    # or fails and so ends a wait that nobody would end.
                    place.watch.wake()
            elif place.expires_at > now:
                in_use.add(place.lease)
                wake.append(place.expires_at)
            else:
                self._register.lapsed(place)

        finished: list[Lease] = []
        suspect: list[Lease] = []
        for lease in self._leases:
            wake.append(now + _period(lease))
            if lease not in in_use and (lease.retired or now - lease.idle_since >= _KEEP_IDLE):
                self._leases.retire(lease)  # at once: nobody may borrow it before it is revoked
                finished.append(lease)
                continue
            if lease.retired:
                suspect.append(lease)
            if lease.refreshed_at:
                due = lease.asked_at + _period(lease)
                if due <= now:
                    self._leases.refresh(lease)
                else:
                    wake.append(due)
        if (finished or suspect) and self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(finished, suspect))
            self._sweeper.add_done_callback(self._swept)
        if wake:
            self._wake_at(min(wake))

    def _swept(self, _: asyncio.Task[None]) -> None:
        self._sweeper = None

    async def _sweep(self, finished: list[Lease], suspect: list[Lease]) -> None:
        # A failure here is tried again at the next tick, for as long as the lease can live.
        with suppress(BackendError):
            for lease in finished:
                await self._leases.revoke(lease)
            for lease in suspect:
                await self._audit(lease)

    async def _audit(self, lease: Lease) -> None:
        """Remove the keys on a retired lease that belong to nobody."""
        left = [place for place in self._register.places() if place.lease is lease and place.leaving]
        found = await self._leases.keys(lease)
        wanted = {place.key for place in self._register.places() if place.lease is lease and place.live}
        for key in found:
            if key not in wanted:
                await asyncio.shield(self._transactions.submit(requests.remove(key), deletes=True))
        for place in left:
            self._register.gone(place)


def _period(lease: Lease) -> float:
    """How often a lease is refreshed: two further chances before it ends."""
    return lease.ttl / 3
