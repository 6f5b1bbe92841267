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
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.base import RedisBackend, ScriptRunner, milliseconds
from asyncdlock.backends.redis.keys import companion, fence_key
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.errors import BackendError, BackendUnavailable, QueueFull
from asyncdlock.types import Capabilities, Claim, Grant, validity

ACQUIRE = Script("queue_common.lua", "queue_acquire.lua")
WATCH = Script("queue_common.lua", "queue_watch.lua")
RELEASE = Script("queue_common.lua", "queue_release.lua", done=1)

_PATIENCE = 3.0
_LEAST_PATIENCE = 0.1  # a third of it lies between two looks
_FIRST_LOOK = 0.1
_MOST_LOST = 5
_CLOCK_STEP = 0.002  # the server's time comes in whole milliseconds
_DO_NOT_JOIN = 0


class MessageRunner(ScriptRunner, Protocol):
    """A server or cluster that also brings the messages of our channel."""

    publish_verb: str
    count_verb: str

    def on_message(self, told: Callable[[str], None], lost: Callable[[], None]) -> None:
        """Call `told` with each message, and `lost` when a connection is lost."""
        ...

    def channel_prefix(self, key: str) -> str:
        """What precedes a session in the name of its channel for `key`."""
        ...

    def listening(self, claim: Claim) -> bool:
        """Whether no message for a waiter with this claim can be missed."""
        ...

    async def listen(self, claim: Claim) -> None:
        """Return when that is so."""
        ...

    def stop_listening(self, claim: Claim) -> None:
        """Nobody of this session waits for the claim's key any more."""
        ...


class _Waiter:
    """One claim in Redis's queue, and how its grant reaches the task that waits."""

    __slots__ = ("claim", "future", "line", "place")

    def __init__(self, claim: Claim, line: "_Line", place: int) -> None:
        self.claim = claim
        self.line = line
        self.place = place
        self.future: asyncio.Future[tuple[int, float]] = asyncio.get_running_loop().create_future()

    def granted(self, fence: int, started: float) -> None:
        """It has the lock, with `fence` as its last fence, since `started`."""
        if not self.future.done():
            self.future.set_result((fence, started))

    def failed(self, error: Exception) -> None:
        """Whatever certainly did not happen to some request: this claim is in the queue."""
        if not self.future.done():
            kind = BackendUnavailable if isinstance(error, BackendUnavailable) else BackendError
            text = str(error) if isinstance(error, BackendError) else repr(error)
            self.future.set_exception(kind(text, definite=False))


_place = attrgetter("place")


class _Line:
    """Those of this process who wait for one key in Redis's queue."""

    __slots__ = ("delays", "key", "lost", "offset", "task", "timer", "waiters")

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiters: dict[str, _Waiter] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.delays: Iterator[float] | None = None
        self.lost = 0  # looks in a row that found no answer
        # Our clock minus the server's. A request is sent before it is carried out, so this errs
        # towards an earlier start of a lease. Taken anew at every look: server clocks jump.
        self.offset = 0.0

    def unserved(self) -> list[_Waiter]:
        """Who waits for a grant, in the order of Redis's queue."""
        waiting = [waiter for waiter in self.waiters.values() if not waiter.future.done()]
        return sorted(waiting, key=_place)

    def first(self) -> _Waiter | None:
        """The one whose turn comes first."""
        return min((w for w in self.waiters.values() if not w.future.done()), key=_place, default=None)

    def started(self, there: int) -> float:
        """When, by our clock, something happened at the server's time `there`, in milliseconds.

        Later than now: the server's clock was set since we last looked, or it is another server's;
        then nobody knows, and a grant must be confirmed.
        """
        now = time.monotonic()
        started = self.offset + there / 1000
        return min(started, now) if started < now + _CLOCK_STEP else -math.inf


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
        self._messages = server
        self._max_waiters = -1 if max_waiters is None else max_waiters
        self._patience = patience
        self._lines: dict[str, _Line] = {}
        self._waiters: dict[str, _Waiter] = {}
        # Owners whose request to join is under way, and messages that overtook its reply's reader.
        self._asking: set[str] = set()
        self._early: dict[str, tuple[int, int]] = {}
        # Requests to join again: a release of the same owner must come after its own.
        self._joining_again: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._deaf = False
        server.on_message(self._told_by_message, self._connection_lost)

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        self._asking.add(claim.owner)
        try:
            sent = time.monotonic()
            # Nobody may wait who would not hear of the grant, and most never have to wait.
            may_wait = self._listening(claim)
            places = self._max_waiters if may_wait else _DO_NOT_JOIN
            reply = await self._run(ACQUIRE, claim, self.local_handoffs, places)
            if type(reply) is list and not may_wait:
                self._told_by_reply(claim.key, reply[3:], sent)
                await self._listen(claim)
                sent = time.monotonic()
                reply = await self._run(ACQUIRE, claim, self.local_handoffs, self._max_waiters)
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
        reply = await self._run(ACQUIRE, claim, 0, _DO_NOT_JOIN)
        if type(reply) is list:
            self._told_by_reply(claim.key, reply[3:], sent)
            return None
        return Grant(claim, int(reply), sent + validity(claim.ttl))

    async def release(self, claim: Claim) -> bool:
        # The wire keeps order: this comes after an acquire of the same claim that is in flight.
        joining = self._joining_again.get(claim.owner)
        if joining is not None:
            await asyncio.wait((joining,))
        sent = time.monotonic()
        reply = await self._run(RELEASE, claim, self.local_handoffs)
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

    def _run(self, script: Script, claim: Claim, reserve: int, *more: str | int) -> Coroutine[Any, Any, Any]:
        key, owner, ttl = claim
        messages = self._messages
        return messages.run(
            script,
            key,
            4,
            key,
            fence_key(key),
            companion("queue", key),
            companion("sessions", key),
            owner,
            milliseconds(ttl),
            reserve + 1,
            milliseconds(self._patience),
            messages.publish_verb,
            messages.channel_prefix(key),
            *more,
        )

    def _listening(self, claim: Claim) -> bool:
        return not self._deaf and self._messages.listening(claim)

    async def _listen(self, claim: Claim) -> None:
        """Listen to our channel; refused or cancelled, the next who would wait tries again."""
        try:
            await self._messages.listen(claim)
        except BaseException:
            self._deaf = True
            raise
        self._deaf = False

    def _join(self, claim: Claim, sent: float, reply: list[Any]) -> _Waiter:
        """The waiter of a claim that has joined the queue, if it has.

        :raises QueueFull: it has not.
        """
        place, pttl, now, *granted = reply
        self._told_by_reply(claim.key, granted, sent)
        if not place:
            raise QueueFull(f"lock {claim.key!r} has {self._max_waiters} waiters already")
        line = self._lines.get(claim.key)
        if line is None:
            line = self._lines[claim.key] = _Line(claim.key)
        line.offset = sent - now / 1000
        waiter = _Waiter(claim, line, place)
        line.waiters[claim.owner] = self._waiters[claim.owner] = waiter
        early = self._early.get(claim.owner)
        if early is not None:
            waiter.granted(early[0], line.started(early[1]))
        elif not self._listening(claim):
            # In a cluster: the last waiter before us left, and our channel with it.
            self._look_later(line, 0.0)
        elif line.timer is None and line.task is None:
            self._look_later(line, min(_FIRST_LOOK, _seconds(pttl)))
        return waiter

    async def _wait(self, waiter: _Waiter) -> tuple[int, float]:
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
            reply = await self._run(RELEASE, Claim(key, owner, 1.0), 0, fence)
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
            self._look_later(line, 0.0)

    def _look_later(self, line: _Line, delay: float) -> None:
        if line.timer is not None:
            line.timer.cancel()
        line.timer = asyncio.get_running_loop().call_later(delay, self._start_look, line)

    def _start_look(self, line: _Line) -> None:
        line.timer = None
        if line.task is None and line.waiters:
            line.task = self._spawn(self._look(line), f"look at {line.key}")

    async def _look(self, line: _Line) -> None:
        """Say that we live, notice a lease that ended without a word, and whether we still queue."""
        try:
            first = line.first()
            if first is None:
                return
            if not self._listening(first.claim):
                await self._listen(first.claim)
            sent = time.monotonic()
            waits, pttl, now, tells, holder, *granted = await self._run(
                WATCH, first.claim, self.local_handoffs, self._messages.count_verb
            )
            line.offset = sent - now / 1000
            self._told_by_reply(line.key, granted, sent)
            unaware = self._waiters.get(holder.decode())
            if not waits and not first.future.done():
                await self._queue_again(line.unserved())
            elif unaware is not None and not unaware.future.done():
                await self._queue_again([unaware])
        except Exception as error:
            if isinstance(error, BackendUnavailable) and not error.definite and line.lost < _MOST_LOST:
                # The connection was lost, and again when the request was repeated. Only a server that
                # cannot be reached any more ends a wait.
                line.lost += 1
                self._look_later(line, 0.0)
                return
            for waiter in line.waiters.values():
                waiter.failed(error)
            if not isinstance(error, BackendError):
                raise  # a defect: whoever waits has heard of it, and the log shall as well
            return
        finally:
            line.task = None
        line.lost = 0
        if not line.waiters:
            return
        if tells:
            line.delays = None
            delay = min(self._patience / 3, _seconds(pttl))
        else:
            # The holder will not tell when it lets go: ask, more and more rarely.
            line.delays = line.delays or jittered(0.01, 0.25)
            delay = min(next(line.delays), _seconds(pttl))
        self._look_later(line, delay)

    async def _queue_again(self, waiters: "list[_Waiter]") -> None:
        """The server forgot them, took them for dead, or told them in vain: they join again, in order."""
        joining = [
            self._spawn(self._join_again(waiter), f"queue again for {waiter.claim.key}") for waiter in waiters
        ]
        for waiter, task in zip(waiters, joining, strict=True):
            self._joining_again[waiter.claim.owner] = task
            task.add_done_callback(partial(self._joined_again, waiter.claim.owner))
        await asyncio.gather(*joining)

    def _joined_again(self, owner: str, task: "asyncio.Task[None]") -> None:
        if self._joining_again.get(owner) is task:
            del self._joining_again[owner]

    async def _join_again(self, waiter: _Waiter) -> None:
        if waiter.future.done():
            return
        sent = time.monotonic()
        reply = await self._run(ACQUIRE, waiter.claim, self.local_handoffs, self._max_waiters)
        if type(reply) is not list:
            waiter.granted(int(reply), sent)
            return
        waiter.place, _, _, *granted = reply
        self._told_by_reply(waiter.claim.key, granted, sent)
        if not waiter.place:
            waiter.failed(BackendError(f"the queue of {waiter.claim.key!r} was lost, and is full again"))

    def _close(self, line: _Line, claim: Claim) -> None:
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        if self._lines.get(line.key) is line:
            del self._lines[line.key]
            self._messages.stop_listening(claim)


def _seconds(pttl: int) -> float:
    """When to look again at a lock with this PTTL: just after it expires; -1 never does."""
    return float("inf") if pttl < 0 else pttl / 1000 + 0.002
