"""What a seed means. Pure: the same seed gives the same plan, on every machine; only the plan repeats."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.faults.accidents import ACCIDENTS, OF_BACKEND
from harness.lab.nemesis import Kind, PlannedFault
from harness.servers.catalogue import INSTALLATIONS, SHARED

PROCESSES = 3
CONTENDERS = 4
"""In each process: enough that tasks of one process, too, wait for each other."""
KEYS = ("torture:hot", "torture:warm")

_CLIENT: tuple[Kind, ...] = ("client frozen", "client killed", "cancel storm", "cancel storm")
_LINKS: tuple[Kind, ...] = ("lock link cut", "lock link slow", "resource link cut", "resource link slow")
_RESOURCE: tuple[Kind, ...] = ("resource frozen", "resource crashed")
_SERVER: tuple[Kind, ...] = ("lock server frozen", "lock server crashed", "accident", "accident", "accident")
_LONGEST_FAULT = 2.5  # in TTLs
_MARGIN = 0.2  # seconds: an accident counts for a TTL after it, and a little more

OPTIONS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    backend: ({}, {"local_handoffs": 0}, {"local_queue": False})
    for backend in SHARED
    if backend not in ("redis", "redlock")
} | {"redlock": ({}, {"local_queue": False})}
"""Clients of one process differ in how they wait for each other, where the backend lets them."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    seed: int
    backend: str
    ttl: float
    seconds: float
    lanes: tuple[tuple[PlannedFault, ...], ...]
    """Lanes run beside each other; the faults of a lane one after the other."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_round(seed: int, backend: str, seconds: float) -> RoundPlan:
    """The faults of one round. Those of the last fifth are left out, so that all of them end within it."""
    ttl = INSTALLATIONS[backend].shortest_ttl
    rng = random.Random(f"torture {backend} {seed}")
    lanes = [_lane(rng, kinds, process, backend, ttl, seconds) for kinds, process in _targets()]
    return RoundPlan(seed, backend, ttl, seconds, tuple(lanes))


def _targets() -> Iterator[tuple[Sequence[Kind], int]]:
    for process in range(PROCESSES):
        yield _CLIENT, process
        yield _LINKS, process
    yield _SERVER, 0
    yield _RESOURCE, 0


def _lane(
    rng: random.Random, kinds: Sequence[Kind], process: int, backend: str, ttl: float, seconds: float
) -> tuple[PlannedFault, ...]:
    faults: list[PlannedFault] = []
    at = rng.uniform(0.2, 1.0)
    while at < 0.8 * seconds:
        fault = _fault(rng, rng.choice(kinds), at, process, backend, ttl)
        faults.append(fault)
        at += fault.seconds + rng.uniform(1.0, 4.0) * max(ttl, 0.5)
    return tuple(faults)


def _fault(rng: random.Random, kind: Kind, at: float, process: int, backend: str, ttl: float) -> PlannedFault:
    # In a fixed order, whatever the kind uses of it: a change to one kind leaves the others as they are.
    length = rng.uniform(0.3, _LONGEST_FAULT) * ttl
    votes = INSTALLATIONS[backend].votes
    nodes = sorted(rng.sample(range(votes), min(votes, rng.choice((1, 1, 2, 3)))))
    ways = rng.choice((("to server",), ("to client",), ("to server", "to client")))
    lose = rng.random() < 0.5
    name, key = rng.choice(OF_BACKEND[backend]).name, rng.choice(KEYS)
    if kind != "accident":
        name = key = ""
    elif ACCIDENTS[name].frees or ACCIDENTS[name].forgets:
        length = ttl + _MARGIN
    return PlannedFault(
        kind, round(at, 3), round(length, 3), process, tuple(nodes), ways, lose, accident=name, key=key
    )


@dataclass(frozen=True, slots=True)
class Visit:
    """One attempt of a contender, and what it does with the lock."""

    how: Literal["acquire", "try", "hold"]
    renew: bool
    timeout: float
    wait: float
    """Seconds between read and write."""
    stall: bool
    """The whole event loop stands still meanwhile."""
    cancel_after: float | None
    """Seconds until it is cancelled, wherever it is by then."""


_WAYS: tuple[Literal["acquire", "try", "hold"], ...] = ("acquire", "acquire", "try", "hold", "hold")


def draw_visits(seed: int, process: int, contender: int, *, ttl: float) -> Iterator[Visit]:
    """Of one contender, without end. Most are quick; one in ten overstays its lease."""
    rng = random.Random(f"torture {seed}, process {process}, contender {contender}")
    while True:
        how = rng.choice(_WAYS)
        length, kind, stalled = rng.random(), rng.random(), rng.random()
        wait = (1.05 + 0.8 * length) * ttl if kind < 0.1 else 0.02 * length
        cancelled = rng.choice((None, None, None, None, 0.002, 0.05, ttl))
        yield Visit(
            how,
            rng.random() < 0.6,
            rng.choice((0.05, ttl, 4 * ttl)),
            round(wait, 4),
            stalled < 0.2,
            cancelled,
        )
