"""Holders that stand still on purpose: their lease is not renewed, and runs out if the pause is longer."""

import asyncio
from collections import deque
from collections.abc import Iterable

from harness.faults.plan import FaultSpec
from harness.history import Fault, Row
from harness.load.clock import now

_NANOSECONDS = 1_000_000_000
_NEVER = 1 << 62


class Freezes:
    """The pauses of holders that `--fault pause:holder@…` plans, for one process of the fleet."""

    def __init__(self, plan: Iterable[FaultSpec] = (), process: int = 0, processes: int = 1) -> None:
        holders = [fault for fault in plan if fault.target == "holder"]
        self._planned = deque(holders[process::processes])
        self._chosen: dict[int, FaultSpec] = {}
        self.faults: list[Fault] = []
        """Those that came about."""
        self.due = _NEVER
        """When the next one is due, in nanoseconds of the run: whoever asks for a lock then is chosen."""
        self._next()

    def add(self, fault: FaultSpec) -> None:
        """One more, before those that are planned for later."""
        self._planned = deque(sorted((*self._planned, fault), key=lambda planned: planned.at))
        self._next()

    def choose(self, row: Row) -> None:
        """This arrival is about to ask for its lock: it will be frozen once it holds it."""
        row.paused = True
        self._chosen[row.id] = self._planned.popleft()
        self._next()

    def spare(self, row: Row) -> None:
        """It was not granted the lock: the next one to ask is frozen in its place."""
        if (fault := self._chosen.pop(row.id, None)) is not None:
            self._planned.appendleft(fault)
            self._next()

    async def stand_still(self, row: Row, start: int, pause: float) -> None:
        """For as long as was planned for this holder, else for `pause` seconds."""
        fault = self._chosen.pop(row.id, None)
        if fault is None:
            await asyncio.sleep(pause)
            return
        began = now() - start
        try:
            await asyncio.sleep(fault.seconds or 0.0)
        finally:
            who = {"who": f"arrival {row.id}", "fence": row.fence}
            self.faults.append(Fault("holder frozen", began, now() - start, who))

    def _next(self) -> None:
        self.due = round(self._planned[0].at * _NANOSECONDS) if self._planned else _NEVER
