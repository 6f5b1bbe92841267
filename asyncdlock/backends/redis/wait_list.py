"""Those in this process that wait for one key in Redis's queue, and the monitor that watches over them.

One look per key and process, on behalf of the first of them, says that the process is alive, and finds what
went wrong without a message. The next follows when the holder's lease would end, or a third of our patience
later; sooner while the holder is of a kind that notifies nobody.
"""

import asyncio
import math
import time
from collections.abc import Iterator
from operator import attrgetter

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.background import Background
from asyncdlock.backends.redis.grants import Grants
from asyncdlock.backends.redis.queue_server import Joined, QueueServer, Watched
from asyncdlock.backends.redis.replies import ReadOnly
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim

_CLOCK_STEP = 0.002  # the server's time comes in whole milliseconds
_FIRST_LOOK = 0.1
_MOST_LOST = 5


class Waiter:
    """One claim in Redis's queue, and how its grant reaches the task that waits."""

    __slots__ = ("claim", "future", "place", "rejoining", "waiting_in")

    def __init__(self, claim: Claim, waiting_in: "WaitList", place: int) -> None:
        self.claim: Claim = claim
        self.waiting_in: WaitList = waiting_in
        self.place: int = place
        self.rejoining: asyncio.Task[None] | None = None
        self.future: asyncio.Future[tuple[int, float]] = asyncio.get_running_loop().create_future()

    def granted(self, last_fence: int, started: float) -> None:
        """It has the lock, since `started`."""
        if not self.future.done():
            self.future.set_result((last_fence, started))

    def failed(self, error: Exception) -> None:
        """Whatever certainly did not happen to some request: this claim is in the queue."""
        if not self.future.done():
            kind = BackendUnavailable if isinstance(error, BackendUnavailable) else BackendError
            text = str(error) if isinstance(error, BackendError) else repr(error)
            self.future.set_exception(kind(text, definite=False))


_place = attrgetter("place")


class WaitList:
    """The waiters of this process for one key."""

    __slots__ = (
        "_again",
        "_background",
        "_delays",
        "_grants",
        "_lost",
        "_offset",
        "_server",
        "_task",
        "key",
        "timer",
        "waiters",
    )

    def __init__(self, key: str, server: QueueServer, grants: Grants, background: Background) -> None:
        self.key: str = key
        self.waiters: dict[str, Waiter] = {}
        self.timer: asyncio.TimerHandle | None = None
        self._server = server
        self._grants = grants
        self._background = background
        self._task: asyncio.Task[None] | None = None
        self._again = False  # a look was wanted while one was under way
        self._delays: Iterator[float] | None = None
        self._lost = 0  # looks in a row that found no answer
        self._offset = 0.0

    def add(self, claim: Claim, joined: Joined, sent: float) -> Waiter:
        """A claim that has joined the queue by a request sent at `sent`."""
        self._note_clock(sent, joined.server_ms)
        waiter = Waiter(claim, self, joined.place)
        self.waiters[claim.owner] = self._grants.waiters[claim.owner] = waiter
        early = self._grants.early.get(claim.owner)
        if early is not None:
            waiter.granted(early.last_fence, self.started(early.server_ms))
        elif not self._server.messages.listening(claim):
            # In a cluster: the last waiter before us left, and our channel with it.
            self.look_after(0.0)
        elif self.timer is None and self._task is None:
            self.look_after(min(_FIRST_LOOK, _just_after(joined.pttl)))
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """It was served, or gave up; then a request to join again is not repeated behind its release."""
        owner = waiter.claim.owner
        del self.waiters[owner], self._grants.waiters[owner]
        if waiter.rejoining is not None:
            waiter.rejoining.cancel()
        if not self.waiters:
            self.close()

    def close(self) -> None:
        """No more looks."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _note_clock(self, sent: float, server_ms: int) -> None:
        # Our clock minus the server's. A request is sent before it is carried out, and the server cuts off
        # what is less than a millisecond: this errs towards an earlier start of a lease. Taken anew at
        # every look: server clocks jump.
        self._offset = sent - (server_ms + 1) / 1000

    def started(self, server_ms: int) -> float:
        """When, by our clock, something happened at this time of the server's.

        Later than now: the server's clock was set since we last looked, or it is another server's;
        then nobody knows, and a grant must be confirmed.
        """
        now = time.monotonic()
        started = self._offset + server_ms / 1000
        return min(started, now) if started < now + _CLOCK_STEP else -math.inf

    def look_after(self, delay: float) -> None:
        """Look after `delay` seconds, and not at the time that was set before."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(delay, self._start_look)

    def _start_look(self) -> None:
        self.timer = None
        if self._task is not None:
            self._again = True
        elif self.waiters:
            look = self._background.start(self._look(), f"look at {self.key}")
            self._task = None if look.done() else look  # an eager task may have ended already

    async def _look(self) -> None:
        self._again = False
        try:
            delay = await self._look_once()
        except Exception as error:
            lost = isinstance(error, BackendUnavailable) and not error.definite
            if (lost or isinstance(error, ReadOnly)) and self._lost < _MOST_LOST:
                # The connection was lost, and again when the request was repeated; or the server handed over
                # to another. Only one that cannot be reached any more ends a wait.
                self._lost += 1
                delay = 0.0
            else:
                for waiter in self.waiters.values():
                    waiter.failed(error)
                if not isinstance(error, BackendError):
                    raise  # a defect: whoever waits has heard of it, and the log shall as well
                return
        else:
            self._lost = 0
        finally:
            self._task = None
        if self.waiters:
            self.look_after(0.0 if self._again else delay)

    async def _look_once(self) -> float:
        """Say that we live, notice a lease that ended without a word, and whether we still queue.

        Returns after how many seconds to look again.
        """
        first = min(self._unserved(), key=_place, default=None)
        if first is None:
            return _FIRST_LOOK
        if not self._server.messages.listening(first.claim):
            await self._server.messages.listen(first.claim)
        sent = time.monotonic()
        seen = Watched.parse(await self._server.watch(first.claim))
        self._note_clock(sent, seen.server_ms)
        self._grants.by_reply(self.key, seen.handed, sent)
        holder = self.waiters.get(seen.holder)
        if not seen.waits and not first.future.done():
            await self._join_again(sorted(self._unserved(), key=_place))
        elif holder is not None and not holder.future.done():
            await self._join_again([holder])  # it was told in vain
        if seen.tells:
            self._delays = None
            return min(self._server.patience / 3, _just_after(seen.pttl))
        # The holder will not tell when it lets go: ask, more and more rarely.
        self._delays = self._delays or jittered(0.01, 0.25)
        return min(next(self._delays), _just_after(seen.pttl))

    def _unserved(self) -> list[Waiter]:
        return [waiter for waiter in self.waiters.values() if not waiter.future.done()]

    async def _join_again(self, waiters: list[Waiter]) -> None:
        """The server forgot them, took them for dead, or told them in vain: they join again, in order.

        :raises BackendError: one of them could not.
        """
        for waiter in waiters:
            work = self._rejoin(waiter)
            waiter.rejoining = self._background.start(work, f"queue again for {self.key}")
        joining = [waiter.rejoining for waiter in waiters if waiter.rejoining is not None]
        await asyncio.wait(joining)
        for waiter in waiters:
            waiter.rejoining = None
        for task in joining:
            if not task.cancelled():
                task.result()

    async def _rejoin(self, waiter: Waiter) -> None:
        if waiter.future.done():
            return
        sent = time.monotonic()
        try:
            reply = await self._server.acquire(waiter.claim, join=True)
        except asyncio.CancelledError:
            self._again = True  # its reply might have told of a grant to another
            raise
        if type(reply) is not list:
            waiter.granted(int(reply), sent)
            return
        joined = Joined.parse(reply)
        waiter.place = joined.place
        self._grants.by_reply(self.key, joined.handed, sent)
        if not joined.place:
            waiter.failed(BackendError(f"the queue of {self.key!r} was lost, and is full again"))


def _just_after(pttl: int) -> float:
    """Seconds until a lock with this PTTL has expired; -1 never does."""
    return float("inf") if pttl < 0 else pttl / 1000 + 0.002
