"""A Backend that does as the test says: for what no real server does on demand."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity


class Scripted:
    """Grants at once, renews and releases, and notes every call; each verb can be replaced."""

    name = "scripted"
    capabilities = Capabilities(
        fencing=True, fifo=True, push_wakeup=True, interprocess=True, min_ttl=0.01, fence_floor=True
    )
    local_queue = False
    local_handoffs = 0

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        """The verbs in order, each with the owner (or the key) that it was about."""
        self.fence = 0
        self.on_acquire: Callable[[Claim], Awaitable[None]] | None = None
        """Awaited before the grant: may wait, or raise."""
        self.on_release: Callable[[Claim], Awaitable[None]] | None = None
        self.on_raise_fence: Callable[[str, int], Awaitable[None]] | None = None
        self.on_renew: Callable[[Sequence[Grant]], Awaitable[Sequence[LeaseState]]] | None = None
        self.owned = True
        """What a release finds."""
        self.expired_on_arrival = 0
        """So many grants come too late to be of use."""

    @property
    def commands(self) -> int:
        return len(self.calls)

    def owners(self, verb: str) -> list[str]:
        return [owner for called, owner in self.calls if called == verb]

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        self.calls.append(("acquire", claim.owner))
        sent = time.monotonic()
        if self.on_acquire is not None:
            await self.on_acquire(claim)
        self.fence += 1 + reserve
        expires_at = sent + validity(claim.ttl)
        if self.expired_on_arrival:
            self.expired_on_arrival -= 1
            expires_at = sent - 0.001
        return Grant(claim, self.fence - reserve, expires_at, reserve)

    async def try_acquire(self, claim: Claim) -> Grant | None:
        return await self.acquire(claim)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        self.calls += [("renew", grant.claim.owner) for grant in grants]
        if self.on_renew is not None:
            return await self.on_renew(grants)
        return [LeaseState.RENEWED] * len(grants)

    async def release(self, claim: Claim) -> bool:
        self.calls.append(("release", claim.owner))
        if self.on_release is not None:
            await self.on_release(claim)
        return self.owned

    async def raise_fence(self, key: str, above: int) -> None:
        self.calls.append(("raise_fence", key))
        if self.on_raise_fence is not None:
            await self.on_raise_fence(key, above)
        else:
            self.fence = max(self.fence, above)

    async def aclose(self) -> None:
        self.calls.append(("aclose", ""))


async def never(*_: object) -> None:
    """Waits until it is cancelled."""
    await asyncio.get_running_loop().create_future()
