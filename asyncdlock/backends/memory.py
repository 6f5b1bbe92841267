"""memory://: an in-process reference backend, for users' own unit tests.

Locks live in the module, by the name in the URL (`memory://name`), so that two clients of one
process exclude each other like two processes on a real server. TTLs are honoured by the clock.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

from asyncdlock.types import (
    Capabilities,
    Claim,
    Grant,
    LeaseState,
    LockInfo,
    NamedOwner,
    SharedClaim,
    Waiter,
    label_of,
    new_grant,
    validity,
)


class _Lock:
    """One key: who holds it until when, alone or with others, who waits, and the fence counter."""

    __slots__ = ("expires_at", "fence", "granted", "label", "owner", "sharers", "timer", "waiters")

    def __init__(self) -> None:
        self.owner: str | None = None
        self.label = ""
        self.granted: Grant | None = None
        self.expires_at = 0.0
        self.sharers: dict[str, float] = {}
        """Who holds it together with others, and until when."""
        self.fence = 0
        self.timer: asyncio.TimerHandle | None = None
        self.waiters: OrderedDict[str, tuple[Claim, int, asyncio.Future[Grant], str]] = OrderedDict()

    def grant(self, claim: Claim, reserve: int, label: str) -> Grant:
        now = time.monotonic()
        self.label = label
        if isinstance(claim, SharedClaim):
            self.owner = None
            owner = claim.owner
            self.sharers[NamedOwner.of(owner, label_of(owner) or label)] = now + claim.ttl
        else:
            self.owner = claim.owner
            self.expires_at = now + claim.ttl
        fence = self.fence + 1
        self.fence = fence + reserve
        grant = self.granted = new_grant((claim, fence, now + validity(claim.ttl), reserve))
        return grant

    def is_free(self) -> bool:
        if self.owner is not None and self.expires_at > time.monotonic():
            return False
        return not self.sharers or not self.shared_by()

    def shared_by(self) -> int:
        """How many hold it beside each other."""
        now = time.monotonic()
        for owner in [owner for owner, ends in self.sharers.items() if ends <= now]:
            del self.sharers[owner]
        return len(self.sharers)

    def admits(self, claim: Claim) -> bool:
        """Whether `claim` may hold it now, if it is the next in turn."""
        if not isinstance(claim, SharedClaim) or not self.sharers:
            return self.is_free()
        return claim.permits == 0 or self.shared_by() < claim.permits

    def serve(self) -> None:
        """Let in the next waiters for as long as they may; else come back when a lease ends."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        while self.waiters:
            owner, (claim, reserve, future, label) = next(iter(self.waiters.items()))
            if not future.done():
                if not self.admits(claim):
                    break
                future.set_result(self.grant(claim, reserve, label))
            del self.waiters[owner]
        if self.waiters:
            ends = min(self.sharers.values(), default=self.expires_at)
            delay = max(0.0, ends - time.monotonic())
            self.timer = asyncio.get_running_loop().call_later(delay, self.serve)


_servers: dict[str, dict[str, _Lock]] = {}


class MemoryBackend:
    """FIFO locks in a dictionary."""

    name = "memory"
    capabilities: Capabilities = Capabilities(
        fencing=True,
        fifo=True,
        push_wakeup=True,
        interprocess=False,
        min_ttl=0.01,
        fence_floor=True,
        once=True,
        shared=True,
        semaphore=True,
        inspection=True,
    )
    local_queue = False
    local_handoffs = 0

    def __init__(self, server: str) -> None:
        self._locks = _servers.setdefault(server, {})
        self.commands: int = 0
        self.label = ""

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        self.commands += 1
        lock = self._locks.get(claim.key)
        if lock is None:
            lock = self._locks[claim.key] = _Lock()
        if not lock.waiters and lock.admits(claim):
            return lock.grant(claim, reserve, self.label)
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        lock.waiters[claim.owner] = claim, reserve, future, self.label
        lock.serve()
        return await future

    async def try_acquire(self, claim: Claim) -> Grant | None:
        self.commands += 1
        lock = self._locks.get(claim.key)
        if lock is None:
            lock = self._locks[claim.key] = _Lock()
        return lock.grant(claim, 0, self.label) if not lock.waiters and lock.admits(claim) else None

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        self.commands += 1
        return [self._renew(grant.claim) for grant in grants]

    def _renew(self, claim: Claim) -> LeaseState:
        lock = self._locks.get(claim.key)
        if lock is None or lock.is_free():
            return LeaseState.LOST
        if claim.owner in lock.sharers:
            lock.sharers[claim.owner] = time.monotonic() + claim.ttl
        elif lock.owner == claim.owner:
            lock.expires_at = time.monotonic() + claim.ttl
        else:
            return LeaseState.LOST
        return LeaseState.RENEWED

    async def release(self, claim: Claim) -> bool:
        self.commands += 1
        lock = self._locks.get(claim.key)
        if lock is None:
            return False
        lock.waiters.pop(claim.owner, None)
        owned = not lock.is_free() and (lock.owner == claim.owner or claim.owner in lock.sharers)
        lock.sharers.pop(claim.owner, None)
        if lock.owner == claim.owner:
            lock.owner = None
        lock.serve()
        return owned

    async def raise_fence(self, key: str, above: int) -> None:
        lock = self._locks.setdefault(key, _Lock())
        lock.fence = max(lock.fence, above)

    async def inspect(self, key: str) -> LockInfo:
        lock = self._locks.get(key, _Lock())
        waiters = tuple(
            Waiter(owner=claim.owner, label=label_of(claim.owner) or label)
            for claim, _, future, label in lock.waiters.values()
            if not future.done()
        )
        if lock.shared_by():
            first, *others = [Waiter(owner=one, label=label_of(one)) for one in lock.sharers]
            left = next(iter(lock.sharers.values())) - time.monotonic()
            return LockInfo(
                key=key,
                held=True,
                owner=first.owner,
                label=first.label,
                lease_left=left,
                beside=tuple(others),
                waiters=waiters,
            )
        granted = lock.granted
        if lock.owner is None or granted is None or lock.is_free():
            return LockInfo(key=key, held=False, waiters=waiters)
        now = time.monotonic()
        return LockInfo(
            key=key,
            held=True,
            owner=lock.owner,
            label=label_of(lock.owner) or lock.label,
            since=time.time() - now + granted.expires_at - validity(granted.claim.ttl),
            lease_left=lock.expires_at - now,
            fence=granted.fence,
            last_fence=granted.fence + granted.reserved,
            waiters=waiters,
        )

    async def force_release(self, key: str, above: int) -> bool:
        lock = self._locks.setdefault(key, _Lock())
        held = not lock.is_free()
        lock.owner = None
        lock.sharers.clear()
        lock.fence = max(lock.fence, above) + 1
        lock.serve()
        return held

    async def keys(self, start: str) -> AsyncIterator[str]:
        for key, lock in tuple(self._locks.items()):
            if key.startswith(start) and (lock.waiters or not lock.is_free()):
                yield key

    async def aclose(self) -> None:
        """Nothing to close: the locks belong to the name, not to this client."""


def from_url(url: str, **options: object) -> MemoryBackend:
    parts = urlsplit(url)
    if parts.query or options:
        raise ValueError("memory:// takes no options")
    return MemoryBackend(parts.netloc + parts.path)
