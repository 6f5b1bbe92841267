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

(1) A grant made before the process has been silent for so long costs its TTL, once.

`QueueBackend` has the verbs and hears of grants. `queue_server.py`: the scripts' arguments and the
channel. `line.py`: who waits. `lookout.py`: how those who wait notice and mend what the table names.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from asyncdlock.backends.redis.base import RedisBackend
from asyncdlock.backends.redis.line import Line, Waiter
from asyncdlock.backends.redis.lookout import Lookout
from asyncdlock.backends.redis.queue_server import ACQUIRE, RELEASE, MessageRunner, QueueServer
from asyncdlock.errors import BackendError, BackendUnavailable, QueueFull
from asyncdlock.types import Capabilities, Claim, Grant, validity

_PATIENCE = 3.0
_LEAST_PATIENCE = 0.1  # a third of it lies between two looks
_DO_NOT_JOIN = 0


class QueueBackend(RedisBackend):
    """FIFO locks with pushed hand-off."""

    name = "redis-queue"
    capabilities = Capabilities(
        fencing=True, fifo=True, push_wakeup=True, shared=True, min_ttl=0.01, fence_floor=True
    )

    def __init__(
        self,
        server: MessageRunner,
        *,
        local_queue: bool,
        local_handoffs: int,
        max_waiters: int | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        if not patience >= _LEAST_PATIENCE:
            raise ValueError(f"patience must be at least {_LEAST_PATIENCE:g} s, not {patience:g}")
        super().__init__(server, local_queue=local_queue, local_handoffs=local_handoffs)
        self._queue = QueueServer(server, patience=patience)
        self._max_waiters = -1 if max_waiters is None else max_waiters
        self._lines: dict[str, Line] = {}
        self._waiters: dict[str, Waiter] = {}
        # Owners whose request to join is under way, and messages that overtook its reply's reader.
        self._asking: set[str] = set()
        self._early: dict[str, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lookout = Lookout(
            self._queue,
            self._waiters,
            self._told_by_reply,
            self._spawn,
            handoffs=local_handoffs,
            max_waiters=self._max_waiters,
            patience=patience,
        )
        server.on_message(self._told_by_message, self._connection_lost)

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        self._asking.add(claim.owner)
        try:
            sent = time.monotonic()
            # Nobody may wait who would not hear of the grant, and most never have to wait.
            may_wait = self._queue.listening(claim)
            places = self._max_waiters if may_wait else _DO_NOT_JOIN
            reply = await self._queue.run(ACQUIRE, claim, self.local_handoffs, places)
            if type(reply) is list and not may_wait:
                self._told_by_reply(claim.key, reply[3:], sent)
                await self._queue.listen(claim)
                sent = time.monotonic()
                reply = await self._queue.run(ACQUIRE, claim, self.local_handoffs, self._max_waiters)
            if type(reply) is not list:
                return self._grant(claim, int(reply), sent, reserve)
            waiter = self._join(claim, sent, reply)
        finally:
            self._asking.discard(claim.owner)
            self._early.pop(claim.owner, None)
        grant = self._grant(claim, *await self._wait(waiter), reserve)
        if grant.expires_at - time.monotonic() >= validity(claim.ttl) / 2:
            return grant
        # It was long on its way: ask again. If the lock is still ours, that brings a new lease and a
        # new fence. To renew the lease would not do: it may have ended, gone to others and come back.
        return await self.acquire(claim, reserve=reserve)

    def _grant(self, claim: Claim, last_fence: int, started: float, reserve: int) -> Grant:
        # Every place in the queue is good for so many fences: a release must be able to name the place.
        first = last_fence - self.local_handoffs
        return Grant(claim, first, started + validity(claim.ttl), min(reserve, self.local_handoffs))

    async def try_acquire(self, claim: Claim) -> Grant | None:
        sent = time.monotonic()
        reply = await self._queue.run(ACQUIRE, claim, 0, _DO_NOT_JOIN)
        if type(reply) is list:
            self._told_by_reply(claim.key, reply[3:], sent)
            return None
        return Grant(claim, int(reply), sent + validity(claim.ttl))

    async def release(self, claim: Claim) -> bool:
        # The wire keeps order: this comes after an acquire of the same claim that is in flight.
        joining = self._lookout.joining_again.get(claim.owner)
        if joining is not None:
            await asyncio.wait((joining,))
        sent = time.monotonic()
        reply = await self._queue.run(RELEASE, claim, self.local_handoffs)
        if type(reply) is list:
            self._told_by_reply(claim.key, reply, sent)
            return True
        return bool(reply)

    async def aclose(self) -> None:
        for waiter in self._waiters.values():
            waiter.failed(BackendUnavailable("the connection was closed"))
        for line in self._lines.values():
            if line.timer is not None:
                line.timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await super().aclose()

    def _join(self, claim: Claim, sent: float, reply: list[Any]) -> Waiter:
        """The waiter of a claim that has joined the queue, if it has.

        :raises QueueFull: it has not.
        """
        place, pttl, now, *granted = reply
        self._told_by_reply(claim.key, granted, sent)
        if not place:
            raise QueueFull(f"lock {claim.key!r} has {self._max_waiters} waiters already")
        line = self._lines.get(claim.key)
        if line is None:
            line = self._lines[claim.key] = Line(claim.key)
        line.offset = sent - now / 1000
        waiter = Waiter(claim, line, place)
        line.waiters[claim.owner] = self._waiters[claim.owner] = waiter
        early = self._early.get(claim.owner)
        if early is not None:
            waiter.granted(early[0], line.started(early[1]))
        elif not self._queue.listening(claim):
            # In a cluster: the last waiter before us left, and our channel with it.
            self._lookout.look_later(line, 0.0)
        elif line.timer is None and line.task is None:
            self._lookout.look_soon(line, pttl)
        return waiter

    async def _wait(self, waiter: Waiter) -> tuple[int, float]:
        """The last fence of the waiter's grant, and when it was made."""
        claim, line = waiter.claim, waiter.line
        try:
            return await waiter.future
        finally:
            del line.waiters[claim.owner], self._waiters[claim.owner]
            if not line.waiters:
                self._close(line, claim)

    def _told_by_message(self, text: str) -> None:
        """A message on our channel: `owner fence time key`."""
        owner, fence, there, key = text.split(" ", 3)
        waiter = self._waiters.get(owner)
        if waiter is not None:
            waiter.granted(int(fence), waiter.line.started(int(there)))
        elif owner in self._asking:
            self._early[owner] = int(fence), int(there)
        else:
            self._spawn(self._give_back(key, owner, fence), f"give back {key}")

    def _told_by_reply(self, key: str, granted: list[Any], sent: float) -> None:
        """The reply to a request sent at `sent` may tell of a grant to another waiter of ours."""
        if not granted or granted[0] is None:
            return
        owner, fence = granted[0].decode(), int(granted[1])
        waiter = self._waiters.get(owner)
        if waiter is not None:
            waiter.granted(fence, sent)
        elif owner not in self._asking:  # else the reply to its own request is about to tell it
            self._spawn(self._give_back(key, owner, str(fence)), f"give back {key}")

    async def _give_back(self, key: str, owner: str, fence: str) -> None:
        """Nobody waits for this grant any more.

        The waiter was cancelled; its release may have been carried out before its request, when the
        two travelled on different connections. Unless given back, the lock would be lost for a TTL.
        """
        sent = time.monotonic()
        with contextlib.suppress(BackendError):
            reply = await self._queue.run(RELEASE, Claim(key, owner, 1.0), 0, fence)
            if type(reply) is list:
                self._told_by_reply(key, reply, sent)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _connection_lost(self) -> None:
        """Messages may have been lost with it: look at every line at once."""
        for line in self._lines.values():
            self._lookout.look_later(line, 0.0)

    def _close(self, line: Line, claim: Claim) -> None:
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        if self._lines.get(line.key) is line:
            del self._lines[line.key]
            self._queue.messages.stop_listening(claim)
