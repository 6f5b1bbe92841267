"""The open loop: starts every arrival at its intended time and never waits for completions.

`contenders` bounds the fleet. An arrival takes a free contender, or waits in the backlog with its
clock running until one is free, until it has waited `patience`, or until the run ends.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Literal

from harness.load.clock import Alarm, LoopAlarm, make_alarm, now

# Arrivals admitted, or given up, in one call. A generator that has fallen behind must still let the
# contenders run: without the bound, a rate beyond its means would never leave the callback.
_BATCH = 128
_NEVER = 1 << 62
_FUTILE = 0.02
"""The share of its patience below which an arrival from the backlog is not begun any more. First come, first
served, a saturated generator would only begin what gives up on the way, and serve nobody."""
_LOOK_EVERY = 0.01
"""Seconds between two looks for room while the fleet drains."""

Serve = Callable[[int, int, int], Awaitable[None]]
"""`await serve(contender, number, due)`: one arrival's life. Outcomes are recorded, not raised."""
GiveUp = Callable[[int, int, Literal["timed_out", "abandoned"]], None]
"""`give_up(number, due, outcome)`: an arrival that no contender ever took."""


class Runner:
    """Offers a schedule of arrivals to a fleet of contenders.

    An alarm admits what is due while the loop is idle. While it is busy contenders do, at each step of
    theirs: they compare the time with `due` and call `admit`, so that a long turn of the loop makes
    nobody late.

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
        room: Callable[[int], bool] = lambda beginning: True,
    ) -> None:
        """Times are nanoseconds. `observe_lag` gets *admitted − due* of every arrival, signed.

        No arrival is begun while `room(beginning)` is false, it waits in the backlog; `beginning` are those
        that were begun and have not run yet.
        """
        self._serve = serve
        self._give_up = give_up
        self._patience = _NEVER if patience is None else patience - round(patience * _FUTILE)
        self._backlog_limit = backlog_limit
        self._observe_lag = observe_lag
        self._room = room
        # First in, first out, so that all contenders serve and a short queue does not always
        # pick the same few: per-contender fairness figures depend on it.
        self._free = deque(range(contenders))
        self._beginning = 0
        self._backlog: deque[tuple[int, int]] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._schedule: Iterator[tuple[int, int]] = iter(())
        self._upcoming: tuple[int, int] = (0, 0)
        self._alarm: Alarm | None = None
        self._idle: asyncio.Future[None] | None = None
        self._admitted: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._open = False
        """Arrivals may still be added to the schedule."""
        self.due = _NEVER
        """When the next arrival is due, on `clock.now()`."""
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

    async def run(self, schedule: Iterator[tuple[int, int]], *, start: int, until: int | None = None) -> None:
        """Admit every `(number, due)` of the schedule at `start + due`; return after the last.

        With `until`, an offset, not before: until then the schedule may change, see `look_again`.

        What was admitted goes on; `drain` waits for it. A cancellation stops the schedule and
        leaves what was admitted running.
        """
        loop = asyncio.get_running_loop()
        admitted = self._admitted = loop.create_future()
        self.start = start
        self._schedule = schedule
        alarm = self._alarm = make_alarm(loop, self._wake)
        closing = None
        if until is not None:
            self._open = True
            # A bare loop timer may fire early, and would cut off the arrivals of the last moment.
            closing = LoopAlarm(loop, self._close)
            closing.arm(start + until)
        try:
            self._next()
            self._wake()
            await admitted
        finally:
            self.due = _NEVER
            alarm.close()
            if closing is not None:
                closing.close()

    def look_again(self, *, void: bool) -> None:
        """The schedule has changed: ask again if the next that it told is `void`, or if it told none."""
        if self._admitted is not None and not self._admitted.done() and (void or self.due == _NEVER):
            self._next()
            self._wake()

    def admit(self) -> None:
        """Admit what is due, a batch at most. To be called whenever `due` has passed."""
        try:
            for _ in range(_BATCH):
                lag = now() - self.due
                if lag < 0:
                    return
                self._observe_lag(lag)
                self._admit(*self._upcoming)
                self._next()
        except Exception as defect:  # in a loop callback it would vanish and the run would hang
            self._end(defect)

    def keep_up(self) -> None:
        """Admit what is due, if anything is."""
        if now() >= self.due:
            self.admit()

    def stop(self) -> None:
        """Admit no further arrivals: `run` returns."""
        self._end()

    async def drain(self, limit: float) -> None:
        """Wait until everything that was admitted is over, at most `limit` seconds.

        :raises TimeoutError: some contenders are still busy; `abandon` ends them.
        """
        async with asyncio.timeout(limit):
            while (self._tasks or self._backlog) and self._failure is None:
                self._dispatch()
                self._idle = asyncio.get_running_loop().create_future()
                await asyncio.wait((self._idle,), timeout=_LOOK_EVERY)
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

    def _wake(self) -> None:
        """The alarm went off."""
        self.admit()
        if self._backlog:
            self._expire()
            self._dispatch()
        if self._alarm is not None and self.due < _NEVER:
            self._alarm.arm(self.due)

    def _next(self) -> None:
        upcoming = next(self._schedule, None)
        if upcoming is None:
            self.due = _NEVER
            if not self._open:
                self._end()
        else:
            self._upcoming = upcoming
            self.due = self.start + upcoming[1]

    def _close(self) -> None:
        self._open = False
        if self.due == _NEVER:
            self._end()

    def _end(self, defect: Exception | None = None) -> None:
        self.due = _NEVER
        if self._admitted is None or self._admitted.done():
            return
        if defect is None:
            self._admitted.set_result(None)
        else:
            self._admitted.set_exception(defect)

    def _admit(self, number: int, due: int) -> None:
        self.offered += 1
        backlog = self._backlog
        if not backlog and self._free and self._room(self._beginning):
            self._begin(number, due)
            return
        if len(backlog) >= self._backlog_limit:
            self.dropped += 1
            self._give_up(number, due, "abandoned")
            return
        backlog.append((number, due))
        if len(backlog) > self.backlog_max:
            self.backlog_max = len(backlog)

    def _begin(self, number: int, due: int) -> None:
        contender = self._free.popleft()
        self._beginning += 1
        self._tasks[contender] = asyncio.create_task(self._busy(contender, number, due))

    async def _busy(self, contender: int, number: int, due: int) -> None:
        self._beginning -= 1
        try:
            while True:
                self.dispatched += 1
                await self._serve(contender, number, due)
                if not self._backlog:
                    return
                following = self._following()
                if following is None:
                    return
                number, due = following
        except asyncio.CancelledError:
            pass  # abandoned: `serve` has recorded it
        except Exception as failure:
            self._failure = self._failure or failure
            self.stop()
        finally:
            del self._tasks[contender]
            self._free.append(contender)
            if self._backlog and self._failure is None:
                self._dispatch()
            if self._idle is not None and not self._idle.done() and (not self._tasks or self._failure):
                self._idle.set_result(None)

    def _dispatch(self) -> None:
        """Begin what waits, as far as there are contenders and room."""
        for _ in range(min(len(self._free), _BATCH)):
            following = self._following()
            if following is None:
                return
            self._begin(*following)

    def _following(self) -> tuple[int, int] | None:
        """Take the first of the backlog that has patience left, if there is room for it."""
        if self._expire() and self._backlog and self._room(self._beginning):
            return self._backlog.popleft()
        return None

    def _expire(self) -> bool:
        """Give up, a batch at most, what is out of patience; whether all of it is given up.

        The backlog is in order of due time.
        """
        backlog = self._backlog
        limit = now() - self.start - self._patience
        for _ in range(_BATCH):
            if not backlog or backlog[0][1] > limit:
                return True
            self.expired += 1
            self._give_up(*backlog.popleft(), "timed_out")
        return False
