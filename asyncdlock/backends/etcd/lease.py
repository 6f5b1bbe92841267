"""Leases of a client: granted, lent to locks, kept alive, given back. Knows nothing of locks."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from aetcd import rpc

from asyncdlock.backends.etcd.connection import LEASE_GRANT, LEASE_REVOKE, TXN, EtcdConnection
from asyncdlock.backends.etcd.failures import LeaseNotFound
from asyncdlock.backends.etcd.keepalive import Answer, KeepAlive
from asyncdlock.errors import BackendError
from asyncdlock.types import LeaseState, validity

# A lease refreshed within this part of its TTL is as good as new for who borrows it.
_FRESH = 0.05
_random = random.SystemRandom()


class Lease:
    """One lease on the server, and what this client knows of it."""

    __slots__ = (
        "asked_at",
        "dead",
        "granting",
        "id",
        "idle_since",
        "names",
        "refreshed_at",
        "refreshing",
        "retired",
        "told",
        "ttl",
    )

    def __init__(self, ttl: int) -> None:
        # Chosen here and not by the server: a grant whose reply was lost can be repeated.
        self.id: int = _random.randrange(1, 1 << 63)
        self.ttl: int = ttl
        self.names: set[str] = set()
        """Who borrows it, by name; never two of the same name."""
        self.idle_since: float = time.monotonic()
        self.refreshed_at: float = 0.0
        """`time.monotonic()` from before the last successful grant or keep-alive was sent."""
        self.asked_at: float = 0.0
        """The same of the last keep-alive, answered or not."""
        self.refreshing: asyncio.Future[LeaseState] | None = None
        """What the last keep-alive found out."""
        self.dead: bool = False
        """It does not exist on the server (any more)."""
        self.retired: bool = False
        """Lent no more, because a request that puts a key under it may still be on its way."""
        self.told: bool = False
        """The server was told whose it is."""
        self.granting: asyncio.Task[None] | None = None

    @property
    def expires_at(self) -> float:
        """Until when what hangs on this lease can be relied on, in `time.monotonic()` seconds."""
        return self.refreshed_at + validity(self.ttl)

    @property
    def lapsed(self) -> bool:
        """It was granted, and not confirmed again in time."""
        return bool(self.refreshed_at) and time.monotonic() >= self.expires_at


class LeasePool:
    """Lends leases so that no lease has two borrowers of the same name.

    Usually that is one lease per TTL, however many locks a client holds, and keeping it alive is
    one message for all of them. Only claims on the same lock that overlap take more.
    """

    def __init__(self, connection: EtcdConnection, on_death: Callable[[Lease], None]) -> None:
        self._connection = connection
        self._on_death = on_death
        self._keepalive = KeepAlive(connection)
        self._lendable: dict[int, list[Lease]] = {}
        self._leases: dict[int, Lease] = {}
        self._background: set[asyncio.Task[object]] = set()

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def lend(self, name: str, ttl: int) -> Lease:
        """A lease for `name`, which may still have to be granted: see `ready`."""
        leases = self._lendable.setdefault(ttl, [])
        for lease in leases:
            if name not in lease.names:
                break
        else:
            lease = Lease(ttl)
            leases.append(lease)
            self._leases[lease.id] = lease
        lease.names.add(name)
        return lease

    def give_back(self, lease: Lease, name: str) -> None:
        """`name` has nothing under the lease any more."""
        lease.names.discard(name)
        lease.idle_since = time.monotonic()

    def retire(self, lease: Lease) -> None:
        """Lend this lease to nobody else."""
        if not lease.retired:
            lease.retired = True
            with suppress(ValueError):
                self._lendable[lease.ttl].remove(lease)

    async def ready(self, lease: Lease) -> None:
        """Wait until the lease exists. One request serves all who wait; cancelling one stops none.

        :raises BackendError: it cannot be granted.
        """
        if lease.refreshed_at:
            return
        if lease.granting is None:
            lease.granting = asyncio.create_task(self._grant(lease))
            lease.granting.add_done_callback(_seen)
        await asyncio.shield(lease.granting)

    def refresh(self, lease: Lease) -> "asyncio.Future[LeaseState]":
        """Extend the lease from now on. Never fails; wait for it behind a shield."""
        now = time.monotonic()
        lease.asked_at = now
        # Two unanswered questions must fit into the validity: the second may still save the lease.
        answer = self._keepalive.ask(lease.id, min(self._connection.settings.attempt_timeout, lease.ttl / 4))
        state: asyncio.Future[LeaseState] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer) -> None:
            left = answer.result()
            if left is None:
                state.set_result(LeaseState.UNKNOWN)
            elif left > 0 and not lease.lapsed:
                lease.refreshed_at = max(lease.refreshed_at, now)
                state.set_result(LeaseState.RENEWED)
            else:
                if left > 0:
                    # The server may have begun to end a lease that it confirms at its last moment
                    # (before the fix of etcd #20590). Nobody relies on it any more: it ends for sure.
                    self._end(lease)
                self.mark_dead(lease)
                state.set_result(LeaseState.LOST)

        answer.add_done_callback(answered)
        lease.refreshing = state
        return state

    def freshen(self, lease: Lease) -> "asyncio.Future[LeaseState] | None":
        """Extend the lease unless that was asked for a moment ago; `None` when it is as good as new."""
        oldest = time.monotonic() - _FRESH * lease.ttl
        if lease.refreshed_at >= oldest:
            return None
        if lease.refreshing is not None and lease.asked_at >= oldest:
            return lease.refreshing
        return self.refresh(lease)

    def mark_dead(self, lease: Lease) -> None:
        """The server does not know the lease: whoever borrowed it has lost what hung on it."""
        if lease.dead:
            return
        lease.dead = True
        self.retire(lease)
        self._leases.pop(lease.id, None)
        self._on_death(lease)

    async def revoke(self, lease: Lease, timeout: float | None = None) -> None:
        """End the lease, and delete what hangs on it.

        :raises BackendError: the server failed; unless repeated, the lease ends by itself.
        """
        self.retire(lease)
        if lease.granting is not None and not lease.granting.done():
            await asyncio.wait({lease.granting})
        with suppress(LeaseNotFound):
            await self._connection.call(LEASE_REVOKE, rpc.LeaseRevokeRequest(ID=lease.id), timeout=timeout)
        self.mark_dead(lease)

    def tell(self, lease: Lease, request: Any) -> None:
        """Tell the server whose lease it is, without waiting, and alone: the lock does not depend on it."""
        lease.told = True
        limit = self._connection.settings.attempt_timeout
        self._start(self._connection.call(TXN, request, timeout=limit))

    def _end(self, lease: Lease) -> None:
        """Revoke a lease in the background; it is kept alive no more, should that fail."""
        self._start(self.revoke(lease, self._connection.settings.attempt_timeout))

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(_seen)

    async def aclose(self) -> None:
        """Revoke everything; what the server does not answer expires there by itself."""
        limit = self._connection.settings.attempt_timeout
        revoked = (self.revoke(lease, limit) for lease in self)
        await asyncio.gather(*revoked, *self._background, return_exceptions=True)
        await self._keepalive.aclose()

    async def _grant(self, lease: Lease) -> None:
        sent = time.monotonic()
        try:
            await self._connection.call(LEASE_GRANT, rpc.LeaseGrantRequest(ID=lease.id, TTL=lease.ttl))
        except BackendError as error:
            if "already exists" not in str(error):
                # The next borrower tries with another one; this one dies unused.
                self.mark_dead(lease)
                raise
        lease.refreshed_at = lease.asked_at = sent


def _seen(task: "asyncio.Task[Any]") -> None:
    """Whoever waited may have been cancelled: a failure that nobody looks at is no log entry."""
    if not task.cancelled():
        task.exception()
