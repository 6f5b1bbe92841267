"""The ways to hold a lock that are compared, and the trials of each: drawn before anything runs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from harness.resource.process import Fence

Level = Literal["coroutine", "event loop", "process"]
"""What is frozen: only the task that holds, the loop that its watchdog needs too, or everything."""
Guard = Literal["pause, write", "pause, check(), write", "check(), pause, write"]

LEVELS: tuple[Level, ...] = ("coroutine", "event loop", "process")
GUARDS: tuple[Guard, ...] = ("pause, write", "pause, check(), write", "check(), pause, write")

# How many TTLs the holder works before the pause: up to two, so that without a watchdog half of the
# leases have run out before the pause even begins.
_LONGEST_WORK = 2.0


@dataclass(frozen=True, slots=True)
class Arm:
    level: Level
    watchdog: bool
    guard: Guard

    @property
    def name(self) -> str:
        return f"{self.level}, watchdog {'on' if self.watchdog else 'off'}: {self.guard}"

    @property
    def open(self) -> bool:
        """Whether a pause of more than a TTL is expected to let a stale write through to the resource."""
        if self.guard == "pause, check(), write":
            return False
        # A watchdog that still runs keeps the lease, however long its holder takes.
        return not (self.watchdog and self.level == "coroutine")


ARMS: tuple[Arm, ...] = tuple(
    Arm(level, watchdog, guard) for level, watchdog, guard in product(LEVELS, (False, True), GUARDS)
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One holder, one rival, one pause. Durations are in TTLs."""

    number: int
    arm: Arm
    pause: float
    work: float
    fence: Fence

    @property
    def key(self) -> str:
        return f"trial:{self.number}"


def draw_trials(rng: random.Random, pauses: Sequence[float], repetitions: int) -> list[Trial]:
    """All trials in random order; work is spread evenly, and every second trial has the fence on."""
    trials: list[Trial] = []
    for arm, pause in product(ARMS, pauses):
        for repetition in range(repetitions):
            work = (repetition + rng.random()) / repetitions * _LONGEST_WORK
            fence: Fence = "on" if repetition % 2 else "off"
            trials.append(Trial(len(trials), arm, pause, round(work, 4), fence))
    rng.shuffle(trials)
    return trials
