"""redis://: the plain recipe. `SET NX PX` and the fence in one script; who loses asks again later."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.keys import fence_key
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.errors import BackendError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

ACQUIRE = Script("acquire.lua")
RENEW = Script("renew.lua")
RELEASE = Script("release.lua")
RAISE_FENCE = Script("raise_fence.lua")

# Locks renewed by one script: a quarter of a millisecond of the server's one thread.
_RENEW_CHUNK = 256
_FIRST_DELAY = 0.002
_LONGEST_DELAY = 0.25


class ScriptRunner(Protocol):
    """What the verbs need of a server or a cluster."""

    @property
    def commands(self) -> int: ...
    async def run(self, script: Script, key: str, *arguments: str | int) -> Any: ...
    async def aclose(self) -> None: ...


def milliseconds(ttl: float) -> int:
    return max(1, int(ttl * 1000))


class SpinBackend:
    """Locks by `SET key owner NX PX ttl`, with jittered waits bounded by the holder's PTTL."""

    name = "redis"
    capabilities = Capabilities(
        fencing=True, fifo=False, push_wakeup=False, shared=True, min_ttl=0.01, fence_floor=True
    )

    def __init__(self, server: ScriptRunner, *, local_queue: bool = False, local_handoffs: int = 0) -> None:
        self._server = server
        self.local_queue = local_queue
        self.local_handoffs = local_handoffs

    @property
    def commands(self) -> int:
        return self._server.commands

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        delays = None
        while True:
            outcome = await self._attempt(claim, reserve)
            if isinstance(outcome, Grant):
                return outcome
            if delays is None:
                delays = jittered(_FIRST_DELAY, _LONGEST_DELAY)
            delay = next(delays)
            # A lock that is about to expire need not be waited for longer; -1 never expires.
            await asyncio.sleep(delay if outcome < 0 else min(delay, outcome + 0.001))

    async def try_acquire(self, claim: Claim) -> Grant | None:
        outcome = await self._attempt(claim, 0)
        return outcome if isinstance(outcome, Grant) else None

    async def _attempt(self, claim: Claim, reserve: int) -> Grant | float:
        """The grant, or for how many seconds the present holder's lease lasts (negative: for ever)."""
        key, owner, ttl = claim
        sent = time.monotonic()
        reply = await self._server.run(
            ACQUIRE, key, 2, key, fence_key(key), owner, milliseconds(ttl), reserve + 1
        )
        if type(reply) is list:
            return float(reply[0] / 1000)
        return Grant(claim, int(reply) - reserve, sent + validity(ttl), reserve)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        states: list[LeaseState] = []
        for start in range(0, len(grants), _RENEW_CHUNK):
            states += await self._renew_chunk(grants[start : start + _RENEW_CHUNK])
        return states

    async def _renew_chunk(self, grants: Sequence[Grant]) -> list[LeaseState]:
        claims = [grant.claim for grant in grants]
        try:
            replies = await self._server.run(
                RENEW,
                claims[0].key,
                len(claims),
                *(claim.key for claim in claims),
                *(claim.owner for claim in claims),
                *(milliseconds(claim.ttl) for claim in claims),
            )
        except BackendError:
            return [LeaseState.UNKNOWN] * len(grants)
        return [LeaseState.RENEWED if reply else LeaseState.LOST for reply in replies]

    async def release(self, claim: Claim) -> bool:
        # The wire keeps order: this comes after an acquire of the same claim that is in flight.
        return bool(await self._server.run(RELEASE, claim.key, 1, claim.key, claim.owner))

    async def raise_fence(self, key: str, above: int) -> None:
        await self._server.run(RAISE_FENCE, key, 1, fence_key(key), above)

    async def aclose(self) -> None:
        await self._server.aclose()
