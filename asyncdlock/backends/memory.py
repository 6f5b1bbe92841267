"""memory://: an in-process reference backend, for users' own unit tests.

Locks live in the module, by the name in the URL (`memory://name`), so that two clients of one
process exclude each other like two processes on a real server. TTLs are honoured by the clock.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from urllib.parse import urlsplit

from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, SharedClaim, new_grant, validity


class _Lock:
    """One key: who holds it until when, alone or beside others, who waits, and the fence counter."""

    __slots__ = ("expires_at", "fence", "owner", "sharers", "timer", "waiters")

    def __init__(self) -> None:
        self.owner: str | None = None
        self.expires_at = 0.0
        self.sharers: dict[str, float] = {}
        """Who holds it beside others, and until when."""
        self.fence = 0
        self.timer: asyncio.TimerHandle | None = None
        self.waiters: OrderedDict[str, tuple[Claim, int, asyncio.Future[Grant]]] = OrderedDict()

    def grant(self, claim: Claim, reserve: int) -> Grant:
        now = time.monotonic()
        if isinstance(claim, SharedClaim):
            self.owner = None
            self.sharers[claim.owner] = now + claim.ttl
        else:
            self.owner = claim.owner
            self.expires_at = now + claim.ttl
        fence = self.fence + 1
        self.fence = fence + reserve
        return new_grant((claim, fence, now + validity(claim.ttl), reserve))

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
            owner, (claim, reserve, future) = next(iter(self.waiters.items()))
            if not future.done():
                if not self.admits(claim):
                    break
                future.set_result(self.grant(claim, reserve))
            del self.waiters[owner]
        if self.waiters:
            ends = min(self.sharers.values(), default=self.expires_at)
            delay = max(0.0, ends - time.monotonic())
            self.timer = asyncio.get_running_loop().call_later(delay, self.serve)


_servers: dict[str, dict[str, _Lock]] = {}


class MemoryBackend:
    """FIFO locks in a dictionary."""

    name = "memory"
    capabilities = Capabilities(
        fencing=True,
        fifo=True,
        push_wakeup=True,
        interprocess=False,
        min_ttl=0.01,
        fence_floor=True,
        shared=True,
        semaphore=True,
    )
    local_queue = False
    local_handoffs = 0

    def __init__(self, server: str) -> None:
        self._locks = _servers.setdefault(server, {})
        self.commands = 0

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        self.commands += 1
        lock = self._locks.get(claim.key)
        if lock is None:
            lock = self._locks[claim.key] = _Lock()
        if not lock.waiters and lock.admits(claim):
            return lock.grant(claim, reserve)
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        lock.waiters[claim.owner] = claim, reserve, future
        lock.serve()
        return await future

    async def try_acquire(self, claim: Claim) -> Grant | None:
        self.commands += 1
        lock = self._locks.get(claim.key)
        if lock is None:
            lock = self._locks[claim.key] = _Lock()
        return lock.grant(claim, 0) if not lock.waiters and lock.admits(claim) else None

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

    async def aclose(self) -> None:
        """Nothing to close: the locks belong to the name, not to this client."""


def from_url(url: str, **options: object) -> MemoryBackend:
    parts = urlsplit(url)
    if parts.query or options:
        raise ValueError("memory:// takes no options")
    return MemoryBackend(parts.netloc + parts.path)
