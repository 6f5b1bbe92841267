"""Ends the waits for silent nodes with one timer for all: a timer each costs a tenth of a cycle's CPU."""

import asyncio
import math
import time
from typing import Protocol


class Timed(Protocol):
    """What is waited for."""

    def time_up(self) -> None:
        """Go on without what is missing."""
        ...


class Waits:
    """Who is waited for until when, of one client."""

    __slots__ = ("_timer", "_timer_at", "_until")

    def __init__(self) -> None:
        self._until: dict[Timed, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def enter(self, ballot: Timed, within: float) -> None:
        self._until[ballot] = until = time.monotonic() + within
        if self._timer is None or until < self._timer_at:
            self._arm(until)

    def leave(self, ballot: Timed) -> None:
        del self._until[ballot]

    def close(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, until: float) -> None:
        self.close()
        self._timer_at = until
        delay = max(0.0, until - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = time.monotonic()
        for ballot in [ballot for ballot, until in self._until.items() if until <= now]:
            self._until[ballot] = math.inf
            ballot.time_up()
        if (earliest := min(self._until.values(), default=math.inf)) < math.inf:
            self._arm(earliest)
