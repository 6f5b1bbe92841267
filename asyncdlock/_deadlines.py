"""Ends waits at their deadline, with one timer for all of them.

A timer for each call, set and cancelled again, costs more than all the rest of taking a free lock
(`python -m bench.peers` has both). Waits sit in buckets by the time at which they end; one timer serves
the earliest bucket that still has somebody in it.
"""

import asyncio
import math
import time
from heapq import heappop, heappush

Task = asyncio.Task[object]

_PER_SECOND = 1000
_COARSE = 10  # buckets: how exactly a wait of a second or longer ends
_LONG = 1.0
_LONGEST = 1e9  # seconds, thirty years: what is longer has no number of its own
_ROUNDING = 1e-6


class Deadlines:
    """Who waits until when, of one client."""

    __slots__ = (
        "_buckets",
        "_order",
        "_timer",
        "_timer_bucket",
        "bucket",
        "expired",
        "same_until",
        "timeout",
    )

    def __init__(self) -> None:
        self._buckets: dict[int, set[Task]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = 0
        self.expired: set[Task] = set()
        """Those that were cancelled because their time was up, until they have left."""
        self.timeout: float = 0.0
        """Of the last wait that asked. Until `same_until`, a wait of that length belongs in `bucket`."""
        self.same_until: float = -math.inf
        self.bucket: set[Task] = set()

    def enter(self, now: float, timeout: float) -> set[Task]:
        """The bucket for a task that is to be cancelled once its time is up; it leaves by itself."""
        number = int((now + min(timeout, _LONGEST)) * _PER_SECOND) + 1
        if timeout >= _LONG:
            number += -number % _COARSE
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = set()
            heappush(self._order, number)
            if self._timer is None or number < self._timer_bucket:
                self._arm()
        self.timeout, self.bucket = timeout, bucket
        self.same_until = number / _PER_SECOND - timeout - _ROUNDING
        return bucket

    def settle(self, task: Task, asked: int) -> bool:
        """Take back the cancellation of an expired task; `True` if nobody else has asked for one.

        `asked` is how many cancellations the task had been asked for when it entered.
        """
        self.expired.discard(task)
        return task.uncancel() <= asked

    def close(self) -> None:
        """No wait is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_bucket = self._order[0]
        delay = self._timer_bucket / _PER_SECOND - time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._turn)

    def _turn(self) -> None:
        """End the waits whose time is up, and pass over the buckets that everybody has left."""
        now = time.monotonic()
        self._timer = None
        while self._order:
            number = self._order[0]
            bucket = self._buckets[number]
            if bucket and number / _PER_SECOND > now:
                self._arm()
                return
            heappop(self._order)
            del self._buckets[number]
            self.same_until = -math.inf
            for task in bucket:
                self.expired.add(task)
                task.cancel()
