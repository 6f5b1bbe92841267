"""How long this host keeps a process from running: how late a timer that is due every millisecond fires.

What is measured is an idle event loop, as jHiccup measures an idle thread: the operating system, the
hypervisor and whoever else uses the processors. What a program adds by blocking its own loop is not in it.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

_EVERY = 0.001
STALL = 0.005
"""Later than this is a stall, in seconds; below lie the timers' own steps."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """What was seen in `seconds`, of which `ticks` timers fired."""

    seconds: float
    ticks: int
    stalls: Sequence[float]
    """The lateness of each that was late, in seconds."""

    @property
    def longest(self) -> float:
        return max(self.stalls, default=0.0)


async def measure_stalls(seconds: float) -> Stalls:
    """Watch for `seconds`."""
    stalls: list[float] = []
    ticks = 0
    began = now = time.perf_counter()
    while now - began < seconds:
        due = now + _EVERY
        await asyncio.sleep(_EVERY)
        now = time.perf_counter()
        ticks += 1
        if now - due > STALL:
            stalls.append(now - due)
    return Stalls(now - began, ticks, stalls)
