"""What held this process up while it made load: the garbage collector, a late event loop, no processor."""

import asyncio
import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

_EVERY = 0.02
_OLDEST = 2
_YOUNG = 5_000
"""New objects after which the collector looks at them: a third of a millisecond."""
_NEVER = 1_000_000
STALL = 0.01
"""A tick that comes later than this counts as a stall, in seconds."""


@dataclass(slots=True)
class Tally:
    """Pauses of one kind, in seconds."""

    count: int = 0
    total: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def merge(self, other: "Tally") -> None:
        self.count += other.count
        self.total += other.total
        self.longest = max(self.longest, other.longest)


@dataclass(slots=True, kw_only=True)
class PauseCounts:
    """What held one process up, by kind."""

    collections: Tally = field(default_factory=Tally)
    full_collections: Tally = field(default_factory=Tally)
    """Those of the oldest generation, which look at every object that was made since the start."""
    stalls: Tally = field(default_factory=Tally)
    run_delay: float | None = None
    """Seconds for which it was ready and had no processor."""

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        tallies = {name: Tally(**told[name]) for name in ("collections", "full_collections", "stalls")}
        return cls(**tallies, run_delay=told.get("run_delay"))


class Pauses:
    """Counts pauses while `watch` runs. One per process."""

    def __init__(self) -> None:
        self.collections = Tally()
        self.full_collections = Tally()
        self.stalls = Tally()
        self._began = 0.0
        self._delayed = run_delay()

    async def watch(self) -> None:
        """Look fifty times a second, for ever. A cancellation takes the collector's hook away."""
        gc.callbacks.append(self._collected)
        try:
            while True:
                asked = time.perf_counter()
                await asyncio.sleep(_EVERY)
                late = time.perf_counter() - asked - _EVERY
                if late > STALL:
                    self.stalls.add(late)
        finally:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: Literal["start", "stop"], info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        seconds = time.perf_counter() - self._began
        self.collections.add(seconds)
        if info["generation"] == _OLDEST:
            self.full_collections.add(seconds)

    def counted(self) -> PauseCounts:
        """So far."""
        before, now = self._delayed, run_delay()
        return PauseCounts(
            collections=self.collections,
            full_collections=self.full_collections,
            stalls=self.stalls,
            run_delay=None if before is None or now is None else now - before,
        )


def run_delay() -> float | None:
    """Seconds for which this thread was ready to run and had no processor, as Linux counts them."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def spare_the_collector() -> None:
    """Keep collections short and young until the process ends: call it once everything is set up.

    What exists now lives until the end, so it is never looked at again. Nor is what survives one
    collection: contenders wait for seconds, and looking at ten thousand of them again and again takes
    a third of the time. A cycle of garbage that happens to survive is not freed; sections make none.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)
