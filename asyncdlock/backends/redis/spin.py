"""redis://: the plain recipe. `SET NX PX` and the fence in one script; whoever loses asks again later."""

import asyncio
import time
from dataclasses import replace

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis import requests
from asyncdlock.backends.redis.base import MOST_FENCES
from asyncdlock.backends.redis.fence_counter import FenceCounter
from asyncdlock.backends.redis.inspection import InspectedRedis
from asyncdlock.backends.redis.queue_server import PATIENCE, MessageRunner, QueueServer
from asyncdlock.backends.redis.replies import OutcomeUnknown
from asyncdlock.backends.redis.requests import RELEASE
from asyncdlock.errors import BackendError
from asyncdlock.types import Capabilities, Claim, Grant, new_grant, validity

_FIRST_DELAY = 0.002
_LONGEST_DELAY = 0.25


class SpinBackend(InspectedRedis):
    """Locks by `SET key owner NX PX ttl`, with jittered waits bounded by the holder's PTTL."""

    name = "redis"
    capabilities: Capabilities = Capabilities(
        fencing=True,
        fifo=False,
        push_wakeup=False,
        interprocess=True,
        min_ttl=0.01,
        fence_floor=True,
        once=True,
        inspection=True,
    )

    def __init__(
        self,
        server: MessageRunner,
        *,
        counter: FenceCounter,
        local_queue: bool = False,
        local_handoffs: int = 0,
    ) -> None:
        super().__init__(server, local_queue=local_queue, local_handoffs=local_handoffs, counter=counter)
        self.capabilities = replace(self.capabilities, once=counter.stays)
        self._take = counter.acquire
        self._take_request = counter.acquire_request
        # For force_release alone: others may queue for the same locks.
        self._queue = QueueServer(
            server, patience=PATIENCE, handoffs=local_handoffs, max_waiters=None, counter=counter
        )

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        key, owner, ttl = claim  # at once: a field of a named tuple costs as much as all three
        record = self._record
        if ttl != record.ttl or type(owner) is not str:
            record.tell(claim)
        delays = None
        while True:
            sent = time.monotonic()
            request = self._take_request(claim, reserve + 1)
            try:
                reply = await self._server.send(self._take, key, request)
            except BackendError as error:
                reply = await self._server.run_again(error, self._take, key, request)
            if type(reply) is not list:
                last_fence = int(reply)
                # `_remember`, written out: a call is 1 % of a cycle.
                fences = self._last_fences
                fences[owner] = last_fence
                if len(fences) > MOST_FENCES:
                    fences.clear()
                return new_grant((claim, last_fence - reserve, sent + validity(ttl), reserve))
            if delays is None:  # made when needed: most acquire at once
                delays = jittered(_FIRST_DELAY, _LONGEST_DELAY)
            delay, pttl = next(delays), reply[0]
            # A lock that is about to expire need not be waited for longer; -1 never expires.
            await asyncio.sleep(delay if pttl < 0 else min(delay, (pttl + 1) / 1000))

    async def try_acquire(self, claim: Claim) -> Grant | None:
        record = self._record
        if claim.ttl != record.ttl or type(claim.owner) is not str:
            record.tell(claim)
        sent = time.monotonic()
        handoffs = self.local_handoffs  # all grants of a client take as many fences: `inspect` goes by that
        reply = await self._server.run(self._take, claim.key, self._take_request(claim, handoffs + 1))
        if type(reply) is list:
            return None
        self._remember(claim.owner, int(reply))
        return Grant(claim, int(reply) - handoffs, sent + validity(claim.ttl))

    async def release(self, claim: Claim) -> bool:
        # The wire keeps order: this comes after an acquire of the same claim that is in flight.
        key, owner, _ = claim
        request = requests.release(claim)
        noted = self._record.noted
        if noted and owner in noted:
            self._record.forget(owner)
        try:
            reply = await self._server.send(RELEASE, key, request)
        except BackendError as error:
            try:
                reply = await self._server.run_again(error, RELEASE, key, request)
            except OutcomeUnknown as doubt:
                return await self._was_given_back(claim, doubt)
        self._last_fences.pop(owner, None)
        return bool(reply)
