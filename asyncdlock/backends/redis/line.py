"""Who of this process waits for one key in Redis's queue."""

import asyncio
import math
import time
from collections.abc import Iterator
from operator import attrgetter

from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim

_CLOCK_STEP = 0.002  # the server's time comes in whole milliseconds


class Waiter:
    """One claim in Redis's queue, and how its grant reaches the task that waits."""

    __slots__ = ("claim", "future", "line", "place")

    def __init__(self, claim: Claim, line: "Line", place: int) -> None:
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


class Line:
    """Those of this process who wait for one key in Redis's queue."""

    __slots__ = ("delays", "key", "lost", "offset", "task", "timer", "waiters")

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiters: dict[str, Waiter] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.delays: Iterator[float] | None = None
        self.lost = 0  # looks in a row that found no answer
        # Our clock minus the server's. A request is sent before it is carried out, so this errs
        # towards an earlier start of a lease. Taken anew at every look: server clocks jump.
        self.offset = 0.0

    def unserved(self) -> list[Waiter]:
        """Who waits for a grant, in the order of Redis's queue."""
        waiting = [waiter for waiter in self.waiters.values() if not waiter.future.done()]
        return sorted(waiting, key=_place)

    def first(self) -> Waiter | None:
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
