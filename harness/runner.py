"""The open loop: starts every arrival at its intended time and never waits for completions.

`contenders` bounds the fleet. An arrival takes a free contender, or waits in the backlog with its
clock running until one is free, until it has waited `patience`, or until the run ends.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Literal

from harness.clock import make_alarm, now

# Arrivals admitted per wake-up. A generator that has fallen behind must still let the contenders
# run: without the bound, a rate beyond its means would never leave the callback.
_BATCH = 64

Serve = Callable[[int, int, int], Awaitable[None]]
"""`await serve(contender, number, due)`: one arrival's life. Outcomes are recorded, not raised."""
GiveUp = Callable[[int, int, Literal["timed_out", "abandoned"]], None]
"""`give_up(number, due, outcome)`: an arrival that no contender ever took."""


class Runner:
    """Offers a schedule of arrivals to a fleet of contenders.

    One task serves a contender for as long as the backlog keeps it busy; a task per arrival was
    measured cheaper than a fleet of tasks parked on futures, and this is no more than that.

    An exception out of `serve` is a defect of the harness: the run stops and `drain` raises it.
    """

    def __init__(
        self,
        serve: Serve,
        give_up: GiveUp,
        *,
        contenders: int,
        patience: int | None = None,
        backlog_limit: int = 1_000_000,
        observe_lag: Callable[[int], object] = lambda lag: None,
    ) -> None:
        """Times are nanoseconds. `observe_lag` gets *admitted − due* of every arrival, signed."""
        self._serve = serve
        self._give_up = give_up
        self._patience = patience
        self._backlog_limit = backlog_limit
        self._observe_lag = observe_lag
        # First in, first out, so that all contenders serve and a short queue does not always
        # pick the same few: per-contender fairness figures depend on it.
        self._free = deque(range(contenders))
        self._backlog: deque[tuple[int, int]] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._idle: asyncio.Future[None] | None = None
        self._admitted: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self.start = 0
        self.offered = 0
        self.dispatched = 0
        self.expired = 0
        self.dropped = 0
        self.backlog_max = 0

    @property
    def backlog(self) -> int:
        """Arrivals that wait for a contender."""
        return len(self._backlog)

    @property
    def busy(self) -> int:
        """Contenders that serve an arrival."""
        return len(self._tasks)

    async def run(self, schedule: Iterator[tuple[int, int]], *, start: int) -> None:
        """Admit every `(number, due)` of the schedule at `start + due`; return after the last.

        What was admitted goes on; `drain` waits for it. A cancellation stops the schedule and
        leaves what was admitted running.
        """
        loop = asyncio.get_running_loop()
        admitted = self._admitted = loop.create_future()
        self.start = start
        upcoming = next(schedule, None)

        def admit_due() -> int | None:
            """Admit what is due, a batch at most; the time to come back at, `None` at the end."""
            nonlocal upcoming
            for _ in range(_BATCH):
                if upcoming is None:
                    return None
                number, due = upcoming
                lag = now() - start - due
                if lag < 0:
                    return start + due
                self._observe_lag(lag)
                self._admit(number, due)
                upcoming = next(schedule, None)
            return now()

        def wake() -> None:
            if admitted.done():
                return
            try:
                again = admit_due()
            except Exception as defect:  # in a loop callback it would vanish and the run would hang
                admitted.set_exception(defect)
                return
            if again is None:
                admitted.set_result(None)
            else:
                alarm.arm(again)

        alarm = make_alarm(loop, wake)
        try:
            wake()
            await admitted
        finally:
            alarm.close()

    def stop(self) -> None:
        """Admit no further arrivals: `run` returns."""
        if self._admitted is not None and not self._admitted.done():
            self._admitted.set_result(None)

    async def drain(self, limit: float) -> None:
        """Wait until everything that was admitted is over, at most `limit` seconds.

        :raises TimeoutError: some contenders are still busy; `abandon` ends them.
        """
        async with asyncio.timeout(limit):
            while self._tasks and self._failure is None:
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
        if self._failure is not None:
            raise self._failure

    async def abandon(self) -> None:
        """Give up the backlog and cancel every busy contender; return when all have ended."""
        self.stop()
        while self._backlog:
            self._give_up(*self._backlog.popleft(), "abandoned")
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _admit(self, number: int, due: int) -> None:
        self.offered += 1
        if self._free:
            contender = self._free.popleft()
            self._tasks[contender] = asyncio.create_task(self._busy(contender, number, due))
            return
        self._expire()
        if len(self._backlog) >= self._backlog_limit:
            self.dropped += 1
            self._give_up(number, due, "abandoned")
            return
        self._backlog.append((number, due))
        self.backlog_max = max(self.backlog_max, len(self._backlog))

    async def _busy(self, contender: int, number: int, due: int) -> None:
        try:
            while True:
                self.dispatched += 1
                await self._serve(contender, number, due)
                self._expire()
                if not self._backlog:
                    return
                number, due = self._backlog.popleft()
        except asyncio.CancelledError:
            pass  # abandoned: `serve` has recorded it
        except Exception as failure:
            self._failure = self._failure or failure
            self.stop()
        finally:
            del self._tasks[contender]
            self._free.append(contender)
            if self._idle is not None and not self._idle.done() and (not self._tasks or self._failure):
                self._idle.set_result(None)

    def _expire(self) -> None:
        """Give up what has waited its whole patience; the backlog is in order of due time."""
        if self._patience is None or not self._backlog:
            return
        limit = now() - self.start - self._patience
        while self._backlog and self._backlog[0][1] <= limit:
            self.expired += 1
            self._give_up(*self._backlog.popleft(), "timed_out")
