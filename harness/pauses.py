"""What held this process up while it made load: the garbage collector, and an event loop that came late."""

import asyncio
import gc
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

_EVERY = 0.02
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


class Pauses:
    """Counts pauses while `watch` runs. One per process."""

    def __init__(self) -> None:
        self.collections = Tally()
        self.stalls = Tally()
        self._began = 0.0

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

    def _collected(self, phase: Literal["start", "stop"], _: object) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.collections.add(time.perf_counter() - self._began)

    def to_json(self) -> dict[str, Any]:
        return {"collections": asdict(self.collections), "stalls": asdict(self.stalls)}
