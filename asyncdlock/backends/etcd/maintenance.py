"""Keeps leases alive while they are used, and removes what must not live on with them.

A lease that serves many locks outlives each of them. So what would go by itself with a lease of
its own needs somebody who removes it:

- a lock whose holder let it lapse, while the lease is renewed for the others;
- a place that could not be given up because no member answered;
- the key of a request whose reply was lost, which may appear on the server long after its owner
  gave up. The lease of such a request is retired: lent no more, and revoked as soon as nobody needs
  it. No copy can put a key after that. Until then the client looks for the key every second.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from asyncdlock.backends.etcd import requests
from asyncdlock.backends.etcd.lease import Lease, LeasePool
from asyncdlock.backends.etcd.place import EtcdPlace
from asyncdlock.backends.etcd.transactions import MAX_OPERATIONS, TransactionBatcher
from asyncdlock.errors import BackendError

# A client that takes a lock now and then finds its lease alive, and so needs one round trip.
_KEEP_IDLE = 30.0
_SWEEP_EVERY = 1.0


class PlaceRegister(Protocol):
    """Who knows the places."""

    def places(self) -> Sequence[EtcdPlace]:
        """All that are not known to be gone."""
        ...

    def leftovers(self) -> Sequence[EtcdPlace]:
        """Those that are gone, unless a late copy of a request brings one back."""
        ...

    def give_up(self, place: EtcdPlace) -> None:
        """Delete what is left of this one."""


class LeaseMaintenance:
    """One timer, and one task while there is something to remove."""

    def __init__(self, leases: LeasePool, transactions: TransactionBatcher, register: PlaceRegister) -> None:
        self._leases = leases
        self._transactions = transactions
        self._register = register
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False
        self._sweeper: asyncio.Task[None] | None = None

    def lease_lent(self, lease: Lease) -> None:
        """A lease is in use."""
        self._wake_at(time.monotonic() + _period(lease))

    def sweep_soon(self, lease: Lease) -> None:
        """A key may appear under the lease that nobody owns."""
        self._wake_at(time.monotonic() + _sweep_period(lease))

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
        wake: list[float] = []
        in_use = self._check_places(now, wake)
        finished = self._check_leases(now, in_use, wake)
        leftovers = self._register.leftovers()
        wake += [now + _sweep_period(place.lease) for place in leftovers]
        if (finished or leftovers) and self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(finished, leftovers))
            self._sweeper.add_done_callback(self._swept)
        if wake:
            self._wake_at(min(wake))

    def _check_places(self, now: float, wake: list[float]) -> set[Lease]:
        """Give up what has lapsed. Which leases are needed by the rest?"""
        in_use: set[Lease] = set()
        for place in self._register.places():
            if place.left:
                if place.leaving is not None and place.leaving.done():
                    self._register.give_up(place)  # it failed
            elif place.expires_at is None:
                in_use.add(place.lease)
                if place.watch is not None and now >= place.lease.refreshed_at + place.lease.ttl:
                    # No member has answered for so long: a fresh read takes the place up again,
                    # or fails and so ends a wait that nobody would end.
                    place.watch.wake()
            elif place.expires_at > now:
                in_use.add(place.lease)
                wake.append(place.expires_at)
            else:
                self._register.give_up(place)
        return in_use

    def _check_leases(self, now: float, in_use: set[Lease], wake: list[float]) -> list[Lease]:
        """Refresh what is due. Which leases does nobody need any more?"""
        finished: list[Lease] = []
        for lease in self._leases:
            wake.append(now + _period(lease))
            if lease not in in_use and (lease.retired or now - lease.idle_since >= _KEEP_IDLE):
                self._leases.retire(lease)  # at once: nobody may borrow it before it is revoked
                finished.append(lease)
            elif lease.refreshed_at:
                due = lease.asked_at + _period(lease)
                if due <= now:
                    self._leases.refresh(lease)
                else:
                    wake.append(due)
        return finished

    def _swept(self, _: asyncio.Task[None]) -> None:
        self._sweeper = None

    async def _sweep(self, finished: Sequence[Lease], leftovers: Sequence[EtcdPlace]) -> None:
        # A failure here is tried again at the next tick, for as long as the lease can live.
        with suppress(BackendError):
            for lease in finished:
                await self._leases.revoke(lease)
            left = [place for place in leftovers if not place.lease.dead]
            for start in range(0, len(left), MAX_OPERATIONS):
                await self._remove(left[start : start + MAX_OPERATIONS])

    async def _remove(self, places: Sequence[EtcdPlace]) -> None:
        """Delete those of the keys that have appeared after all."""
        read = self._transactions.submit(requests.read([place.key for place in places]))
        for place, value in zip(places, requests.found(await asyncio.shield(read)), strict=True):
            if value == place.owner:
                leave = requests.leave(place.key, place.owner)
                await asyncio.shield(self._transactions.submit(leave, deletes=True))


def _period(lease: Lease) -> float:
    """How often a lease is refreshed: two further chances before it ends."""
    return lease.ttl / 3


def _sweep_period(lease: Lease) -> float:
    return min(_SWEEP_EVERY, _period(lease))
