"""The dead man's switch: cancels the task that works under a lease, once the lease is over.

Its timer is set to the lease's deadline, and when it fires it looks at the deadline again: a renewal need not
tell it, and may come from another thread. A hung, crashed or starved watchdog therefore ends the body; it
can never extend the lease.
"""

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncdlock._holding import Holding


class Deadman:
    """Armed for the current task when it is made."""

    __slots__ = ("_asked", "_holding", "_loop", "_task", "_timer", "fired")

    def __init__(self, holding: "Holding") -> None:
        self._loop = loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "only a task can hold a lock"
        self._task = task
        self._asked = task.cancelling()
        self._holding = holding
        self.fired: bool = False
        """Whether the body was cancelled."""
        self._timer: asyncio.Handle | None = loop.call_later(self._left(), self._due)

    def _left(self) -> float:
        return max(0.0, self._holding.expires_at - time.monotonic())

    def _due(self) -> None:
        if self._holding.held:
            self._timer = self._loop.call_later(self._left(), self._due)
        else:
            self._timer = None
            self.fired = True
            self._task.cancel()

    def look_now(self) -> None:
        """The lease is over before its deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._due)

    def disarm(self) -> None:
        """The lock is given back: what comes now is not under its deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ended(self, error: BaseException | None) -> bool:
        """Disarm it; whether `error` is the cancellation that it asked for, and nobody else did."""
        self.disarm()
        return (
            self.fired and self._task.uncancel() <= self._asked and isinstance(error, asyncio.CancelledError)
        )
