"""redis-queue://: a fair queue in Redis, and a release that hands the lock to the next waiter.

Release is one script: it grants the lock to the first waiter that lives, takes its fence, and tells
the waiter's process by a message on that process's channel; a waiter of the releaser's own process
learns it from the reply. The messages come in over the same connection as the replies (RESP3).

What can go wrong costs a bounded time:

| what                                 | who notices                         | after                    |
|--------------------------------------|-------------------------------------|--------------------------|
| a message is lost with a connection  | its process, when it reconnects     | at once                  |
| a waiting process died               | the script: nobody is subscribed    | at once                  |
| a waiting process is frozen          | the script: it has not spoken       | its patience (1)         |
| the holder's lease expires           | every process that waits            | the holder's PTTL        |
| the server restarted empty           | every process that waits            | at once; all queue again |
| a grant is for a waiter that is gone | its process, which gives it back    | at once                  |
| the holder knows no queue (redis://) | every process that waits: they poll | 250 ms                   |

(1) A grant made before the process has been silent for that long costs its TTL, once.

`QueueBackend` has the verbs. `queue_server.py`: the scripts' arguments and replies, and the channel.
`grants.py`: how a grant finds its waiter. `wait_list.py`: who waits for a key, and how they notice what the
table names.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from asyncdlock.backends.redis.fence_counter import FenceCounter
from asyncdlock.backends.redis.grants import Grants
from asyncdlock.backends.redis.inspection import InspectedRedis
from asyncdlock.backends.redis.queue_server import PATIENCE, Handed, Joined, MessageRunner, QueueServer
from asyncdlock.backends.redis.replies import OutcomeUnknown
from asyncdlock.backends.redis.wait_list import Waiter, WaitList
from asyncdlock.errors import BackendError, BackendUnavailable, QueueFull
from asyncdlock.types import Capabilities, Claim, Grant, new_grant, validity

_LEAST_PATIENCE = 0.1  # a third of it lies between two looks


class QueueBackend(InspectedRedis):
    """FIFO locks with pushed hand-off."""

    name = "redis-queue"
    capabilities: Capabilities = Capabilities(
        fencing=True,
        fifo=True,
        push_wakeup=True,
        interprocess=True,
        min_ttl=0.01,
        fence_floor=True,
        once=True,
        shared=True,
        semaphore=True,
        inspection=True,
    )

    def __init__(
        self,
        server: MessageRunner,
        *,
        local_queue: bool,
        local_handoffs: int,
        counter: FenceCounter,
        max_waiters: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        if not patience >= _LEAST_PATIENCE:
            raise ValueError(f"patience must be at least {_LEAST_PATIENCE:g} s, not {patience:g}")
        super().__init__(server, local_queue=local_queue, local_handoffs=local_handoffs, counter=counter)
        self.capabilities = replace(self.capabilities, once=counter.stays)
        self._messages = server
        self._queue = QueueServer(
            server, patience=patience, handoffs=local_handoffs, max_waiters=max_waiters, counter=counter
        )
        self._grants = Grants(self._queue, self._background, held=self._last_fences)
        self._lists: dict[str, WaitList] = {}
        # Keys that a claim asks for before it can hear of a grant, and the turns of the claims behind it.
        self._unheard: dict[str, deque[asyncio.Future[None]] | None] = {}
        server.on_message(self._grants.by_message, self._connection_lost)

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        key, owner, ttl = claim
        grants = self._grants
        if ttl != self._record.ttl or type(owner) is not str:
            self._record.tell(claim)
        grants.asking[owner] = key
        try:
            reply = None
            unheard = key in self._unheard or not self._messages.listening(claim)
            if unheard and type(claim) is not Claim and self._messages.stays_listening:
                # Those who share a lock need not ask for it one after the other.
                with contextlib.suppress(BackendError):  # who may not subscribe can have what is free
                    await self._messages.listen(claim)
                    unheard = key in self._unheard
            if unheard:
                sent, reply = await self._ask_unheard(claim)
            if reply is None:
                sent = time.monotonic()
                reply = await self._queue.acquire(claim, join=True)
            if type(reply) is not list:
                return self._granted(claim, int(reply), sent, reserve)
            waiter = self._join(claim, Joined.parse(reply), sent)
        except asyncio.CancelledError:
            self._look_now(key)
            raise
        finally:
            del grants.asking[owner]
            if grants.early:
                grants.early.pop(owner, None)
            if unheard and key not in self._lists and key not in self._unheard:
                self._messages.stop_listening(claim)
        grant = self._granted(claim, *await self._wait(waiter), reserve)
        if grant.expires_at - time.monotonic() >= validity(claim.ttl) / 2:
            return grant
        # It was long on its way: ask again. If the lock is still ours, that brings a new lease and a
        # new fence. To renew the lease would not do: it may have ended, gone to others and come back.
        return await self.acquire(claim, reserve=reserve)

    async def _ask_unheard(self, claim: Claim) -> tuple[float, Any]:
        """Ask without joining: nobody may wait who would not hear of the grant, and most never have to wait.

        When it was sent, and the reply if that is a fence; else `None`, and we listen. Claims of one key go
        one after the other, so that none joins the queue before an earlier one.
        """
        key = claim.key
        if key not in self._unheard:
            self._unheard[key] = None
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            turns = self._unheard[key]
            if turns is None:
                turns = self._unheard[key] = deque()
            turns.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._let_next_ask(key)
                raise
        sent = time.monotonic()
        try:
            if self._messages.listening(claim):
                return sent, None
            reply = await self._queue.acquire(claim, join=False)
            if type(reply) is not list:
                return sent, reply
            self._grants.by_reply(key, Joined.parse(reply).handed, sent)
            await self._messages.listen(claim)
            return sent, None
        finally:
            self._let_next_ask(key)

    def _let_next_ask(self, key: str) -> None:
        turns = self._unheard[key]
        while turns:
            turn = turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._unheard[key]

    def _granted(self, claim: Claim, last_fence: int, started: float, reserve: int) -> Grant:
        self._remember(claim.owner, last_fence)
        if type(claim) is not Claim:
            return Grant(claim, last_fence, started + validity(claim.ttl))
        # The number of fences is part of the place's name in the queue: a release must be able to name it.
        first = last_fence - self.local_handoffs
        reserved = min(reserve, self.local_handoffs)
        return new_grant((claim, first, started + validity(claim.ttl), reserved))

    async def try_acquire(self, claim: Claim) -> Grant | None:
        if claim.ttl != self._record.ttl or type(claim.owner) is not str:
            self._record.tell(claim)
        sent = time.monotonic()
        try:
            reply = await self._queue.try_acquire(claim)
        except asyncio.CancelledError:
            self._look_now(claim.key)
            raise
        if type(reply) is list:
            self._grants.by_reply(claim.key, Joined.parse(reply).handed, sent)
            return None
        return self._granted(claim, int(reply), sent, 0)

    async def release(self, claim: Claim) -> bool:
        # The wire keeps order: this comes after an acquire of the same claim that is in flight.
        sent = time.monotonic()
        if self._record.noted and claim.owner in self._record.noted:
            self._record.forget(claim.owner)
        try:
            reply = await self._queue.release(claim)
        except asyncio.CancelledError:
            self._look_now(claim.key)
            raise
        except OutcomeUnknown as doubt:
            return await self._was_given_back(claim, doubt)
        self._last_fences.pop(claim.owner, None)
        if type(reply) is list:
            self._grants.by_reply(claim.key, Handed.parse(reply), sent)
            return True
        return bool(reply)

    def _batches(self, grants: Sequence[Grant]) -> Sequence[Sequence[int]]:
        alone = [index for index, grant in enumerate(grants) if type(grant.claim) is Claim]
        if len(alone) in (0, len(grants)):
            return super()._batches(grants)
        # Who holds a lock beside others is renewed by a script of its own.
        beside = [index for index, grant in enumerate(grants) if type(grant.claim) is not Claim]
        batches: list[Sequence[int]] = []
        for kind in (alone, beside):
            of_kind = super()._batches([grants[index] for index in kind])
            batches += [[kind[index] for index in batch] for batch in of_kind]
        return batches

    def _extend(self, claims: Sequence[Claim]) -> Coroutine[Any, Any, Any]:
        if type(claims[0]) is Claim:
            return super()._extend(claims)
        return self._queue.extend_shared(claims)

    async def aclose(self) -> None:
        for waiter in self._grants.waiters.values():
            waiter.failed(BackendUnavailable("the connection was closed"))
        for waiting in self._lists.values():
            waiting.close()
        await super().aclose()

    def _passed_on(self, key: str, reply: list[Any], sent: float) -> None:
        self._grants.by_reply(key, Handed.parse(reply), sent)

    def _join(self, claim: Claim, joined: Joined, sent: float) -> Waiter:
        """The waiter of a claim that has joined the queue, if it has.

        :raises QueueFull: it has not.
        """
        self._grants.by_reply(claim.key, joined.handed, sent)
        if not joined.place:
            raise QueueFull(f"lock {claim.key!r} has {self._queue.max_waiters} waiters already")
        waiting = self._lists.get(claim.key)
        if waiting is None:
            waiting = WaitList(claim.key, self._queue, self._grants, self._background)
            self._lists[claim.key] = waiting
        return waiting.add(claim, joined, sent)

    async def _wait(self, waiter: Waiter) -> tuple[int, float]:
        """The last fence of the waiter's grant, and when it was made."""
        waiting = waiter.waiting_in
        try:
            return await waiter.future
        finally:
            waiting.remove(waiter)
            if not waiting.waiters and self._lists.get(waiting.key) is waiting:
                del self._lists[waiting.key]
                self._messages.stop_listening(waiter.claim)

    def _look_now(self, key: str) -> None:
        """A caller gave up a request whose reply may tell of a grant to another waiter of ours."""
        waiting = self._lists.get(key)
        if waiting is not None:
            waiting.look_after(0.0)

    def _connection_lost(self) -> None:
        """Messages may have been lost with it: look at every list at once."""
        for waiting in self._lists.values():
            waiting.look_after(0.0)
