"""What a seed means. Pure: the same seed gives the same plan, on every machine.

Only the plan repeats. What becomes of it depends on how the machine schedules processes and packets,
which is why a run that failed may have to be repeated a few times until it fails again.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.lab.nemesis import Kind, PlannedFault
from harness.servers.catalogue import INSTALLATIONS, SHARED

GROUPS: tuple[tuple[Kind, ...], ...] = (
    ("client frozen", "client frozen", "client killed"),
    ("lock server frozen", "lock server crashed"),
    ("lock link cut", "lock link slow"),
    ("resource frozen", "resource frozen", "resource crashed"),
    ("resource link cut", "resource link slow"),
)
"""One fault at most of each group in a run, so that no two of them want to stop the same process."""

PROCESSES = 3
CONTENDERS = 2
"""In each process: enough that tasks of one process, too, wait for each other."""

_LENGTH = 6.0  # of the load, in TTLs; longer if a fault is
_LONGEST_FAULT = 2.5  # in TTLs


@dataclass(frozen=True, slots=True)
class RunPlan:
    seed: int
    backend: str
    ttl: float
    seconds: float
    faults: tuple[PlannedFault, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_run(seed: int) -> RunPlan:
    """Backends take turns with consecutive seeds; the rest is drawn."""
    backend = SHARED[seed % len(SHARED)]
    ttl = INSTALLATIONS[backend].shortest_ttl  # a run lasts for six of them
    seconds = _LENGTH * ttl
    rng = random.Random(f"storm {seed}")
    groups = rng.sample(GROUPS, rng.choice((1, 2, 2, 3)))
    faults = [_fault(rng, rng.choice(group), backend, ttl, seconds) for group in groups]
    return RunPlan(seed, backend, ttl, seconds, tuple(sorted(faults, key=lambda fault: fault.at)))


def _fault(rng: random.Random, kind: Kind, backend: str, ttl: float, seconds: float) -> PlannedFault:
    # In a fixed order, whatever the kind uses of it: a change to one kind leaves the others as they are.
    at = rng.uniform(0.05, 0.7) * seconds
    length = rng.uniform(0.3, _LONGEST_FAULT) * ttl
    process = rng.randrange(PROCESSES)
    nodes: Sequence[int] = [0]
    count = rng.choice((1, 1, 2, 3))
    votes = INSTALLATIONS[backend].votes
    if votes > 1:  # up to a majority
        nodes = sorted(rng.sample(range(votes), count))
    ways = rng.choice((("to server",), ("to client",), ("to server", "to client")))
    lose = rng.random() < 0.5
    return PlannedFault(kind, round(at, 3), round(length, 3), process, tuple(nodes), ways, lose)


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """What a contender does with the lock once it has it."""

    renew: bool
    wait: float
    """Seconds between read and write."""
    stall: bool
    """The whole event loop stands still meanwhile, not this contender alone."""


def draw_turns(seed: int, process: int, contender: int, *, ttl: float) -> Iterator[PlannedTurn]:
    """Of one contender, without end. Most are quick; a few take a good part of their lease; a quarter
    overstays it."""
    rng = random.Random(f"storm {seed}, process {process}, contender {contender}")
    while True:
        renew, stall, kind, length = rng.random() < 0.5, rng.random() < 0.3, rng.random(), rng.random()
        if kind < 0.7:
            yield PlannedTurn(renew, wait=round(0.02 * length, 4), stall=stall)
        elif kind < 0.75:
            yield PlannedTurn(renew, wait=round((0.2 + 0.7 * length) * ttl, 4), stall=stall)
        else:  # with its event loop alive a watchdog would keep the lease
            yield PlannedTurn(renew and stall, wait=round((1.05 + 0.8 * length) * ttl, 4), stall=stall)
