"""The verbs of postgres:// on top of batched requests.

A release hands the lock to the first waiter that lives, in the same statement, and tells it by NOTIFY; who
waits asks again now and then. What can go wrong costs a bounded time:

| what                                | who notices                        | after                    |
|-------------------------------------|------------------------------------|--------------------------|
| a wake-up is lost with a connection | its client, when the connection is | at once                  |
| a waiting process died              | the server: its connection is gone | at once                  |
| a waiting process is frozen         | the server: it has not spoken      | its patience (1)         |
| the holder's lease expires          | everybody who waits                | the rest of the lease    |
| the server crashed                  | everybody who waits                | its return; places last  |
| there is a pooler in between        | nobody can be told: they ask       | 250 ms at most           |

(1) A grant made before it has been silent for that long costs its TTL, once.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from asyncdlock._backoff import jittered
from asyncdlock.backends.postgres.inspection import InspectedPostgres
from asyncdlock.backends.postgres.wire import Reply, Wire
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

if TYPE_CHECKING:
    from asyncdlock.backends.postgres.settings import Settings

_log = logging.getLogger("asyncdlock")

_MOST_FAILURES = 2  # of a waiter's looks in a row; a server that restarts is not gone
_CLOCK_STEP = 0.05  # seconds that two readings of the server's clock may disagree by

_Waiter = asyncio.Future[tuple[int, float] | None]
"""Gets the last fence of a grant and the server's time of it, or `None`: ask again."""


class PostgresBackend(InspectedPostgres):
    """Locks in one database."""

    name = "postgres"
    local_queue: bool
    local_handoffs: int

    def __init__(self, settings: "Settings") -> None:
        self.capabilities: Capabilities = Capabilities(
            fencing=True,
            fifo=True,
            push_wakeup=not settings.pooler,
            interprocess=True,
            min_ttl=0.01,
            fence_floor=True,
            once=True,
            shared=True,
            semaphore=True,
            inspection=True,
        )
        self.local_queue = settings.local_queue
        self.local_handoffs = settings.local_handoffs
        self._patience = settings.patience
        self._wire = Wire(settings, self._told, self._ask_again)
        self._waiters: dict[str, _Waiter] = {}

    @property
    def commands(self) -> int:
        return self._wire.commands

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        loop = asyncio.get_running_loop()
        fences = 1 + min(reserve, self.local_handoffs)
        delays = jittered(0.005, 0.25)
        failures = 0
        joined = False
        try:
            while True:
                # In place before the request leaves: the answer may come by message first.
                waiter: _Waiter = loop.create_future()
                self._waiters[claim.owner] = waiter
                try:
                    reply = await self._wire.send("acquire", claim, fences)
                except BackendError as error:
                    failures += 1
                    if not joined or failures > _MOST_FAILURES or not isinstance(error, BackendUnavailable):
                        error.definite = error.definite and not joined
                        raise
                    continue
                if reply.outcome != "waiting":
                    return self._granted(claim, reply, fences)
                joined, failures = True, 0
                pause = min(self._patience / 3, (reply.remaining or 0.0) + 0.002)
                if self._wire.pooled:
                    self._say_that_it_polls()
                    pause = min(pause, next(delays))
                await asyncio.wait({waiter}, timeout=pause)
                grant = _heard(claim, waiter, fences, reply)
                if grant is not None:
                    return grant
        finally:
            del self._waiters[claim.owner]

    def _granted(self, claim: Claim, reply: Reply, fences: int) -> Grant:
        if reply.last_fence is None:
            raise BackendError(f"the fences of {claim.key!r} are used up", definite=False)
        return Grant(claim, reply.last_fence - fences + 1, reply.sent + validity(claim.ttl), fences - 1)

    async def try_acquire(self, claim: Claim) -> Grant | None:
        reply = await self._wire.send("try", claim, 1)
        return None if reply.outcome == "held" else self._granted(claim, reply, 1)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        try:
            futures = [self._wire.send("renew", grant.claim) for grant in grants]
        except BackendError:
            return [LeaseState.UNKNOWN] * len(grants)
        replies = await asyncio.gather(*futures, return_exceptions=True)
        return [_state(reply) for reply in replies]

    async def release(self, claim: Claim) -> bool:
        reply = await self._wire.send("release", claim)
        if reply.outcome == "unknown":
            raise BackendUnavailable(
                f"the connection was lost before it was confirmed that {claim.key!r} was given back, and now "
                "it is not ours: it may have been given back, or lost before"
            )
        return reply.outcome == "released"

    async def raise_fence(self, key: str, above: int) -> None:
        await self._wire.send("raise", Claim(key, "", 0.0), above)

    async def aclose(self) -> None:
        await self._wire.aclose()

    def _told(self, message: str) -> None:
        """`owner last_fence time`, on our channel."""
        owner, last_fence, server_time = message.split(" ")
        waiter = self._waiters.get(owner)
        if waiter is not None and not waiter.done():
            waiter.set_result((int(last_fence), float(server_time)))

    def _ask_again(self) -> None:
        """The connection is lost, and perhaps a message with it; the server takes who waited for dead."""
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_result(None)

    def _say_that_it_polls(self) -> None:
        if self.capabilities.push_wakeup:
            _log.warning(
                "there is a pooler before PostgreSQL: who waits for a lock has to ask again and again. "
                "Connect directly, or say pooler=true"
            )
            self.capabilities = dataclasses.replace(self.capabilities, push_wakeup=False)


def _state(reply: Reply | BaseException) -> LeaseState:
    if not isinstance(reply, Reply):
        return LeaseState.UNKNOWN
    return LeaseState.RENEWED if reply.outcome == "renewed" else LeaseState.LOST


def _heard(claim: Claim, waiter: _Waiter, fences: int, reply: Reply) -> Grant | None:
    """The grant that a message brought, if its lease is fresh: to ask again brings a new one.

    `reply` is the latest to this waiter: when it was sent, the server's clock showed its time or less.
    """
    message = waiter.result() if waiter.done() else None
    if message is None:
        return None
    last_fence, server_time = message
    now = time.monotonic()
    started = reply.sent + (server_time - reply.server_time)
    if started > now + _CLOCK_STEP:  # the clock was set since
        return None
    grant = Grant(claim, last_fence - fences + 1, min(started, now) + validity(claim.ttl), fences - 1)
    return grant if grant.expires_at - now >= validity(claim.ttl) / 2 else None
