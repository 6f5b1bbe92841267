"""What a seed means. Pure: the same seed gives the same plan, on every machine; only the plan repeats."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from harness.faults.accidents import ACCIDENTS, OF_BACKEND
from harness.lab.nemesis import Kind, PlannedFault
from harness.servers.catalogue import INSTALLATIONS, SHARED

PROCESSES = 3
CONTENDERS = 4
"""In each process: enough that tasks of one process, too, wait for each other."""
KEYS = ("torture:hot", "torture:warm")

_CLIENT: tuple[Kind, ...] = ("client frozen", "client killed", "cancel storm", "cancel storm")
_LINKS: tuple[Kind, ...] = ("lock link cut", "lock link slow", "resource link cut", "resource link slow")
_RESOURCE: tuple[Kind, ...] = ("resource frozen", "resource crashed", "resource disk full")
_ACCIDENTS: tuple[Kind, ...] = ("accident", "accident", "accident")
_OUTAGES: tuple[Kind, ...] = ("lock server frozen", "lock server crashed", "lock server disk full")
_SERVER = (*_OUTAGES, *_ACCIDENTS)
_FAILOVERS: tuple[Kind, ...] = ("failover", "failover")
_JUMPS: tuple[Kind, ...] = ("clock jump", "clock jump")
Servers = Literal["one by one", "replicated", "clocked"]
"""Of a round: independent ones; with somebody to take over; with a clock that can be set."""
_SERVERS: Mapping[str, tuple[Servers, ...]] = {
    "redis": ("one by one", "replicated", "clocked"),
    "redis-queue": ("one by one", "replicated", "clocked"),
    "redlock": ("one by one", "clocked"),
    "etcd": ("one by one", "replicated"),
    "zookeeper": ("one by one", "replicated"),
    "postgres": ("one by one",),
}
_MEMBERS = 3
_LONGEST_JUMP = 8.0  # in TTLs
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
    servers: Servers
    lanes: tuple[tuple[PlannedFault, ...], ...]
    """Lanes run beside each other; the faults of a lane one after the other."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_round(seed: int, backend: str, seconds: float) -> RoundPlan:
    """The faults of one round. Those of the last fifth are left out, so that all of them end within it."""
    ttl = INSTALLATIONS[backend].shortest_ttl
    servers = random.Random(f"torture servers {backend} {seed}").choice(_SERVERS[backend])
    rng = random.Random(f"torture {backend} {seed}")
    lanes = [_lane(rng, target, backend, servers, seconds) for target in _targets(backend, servers)]
    return RoundPlan(seed, backend, ttl, seconds, servers, tuple(lanes))


class _Target(NamedTuple):
    kinds: Sequence[Kind]
    process: int = 0


def _targets(backend: str, servers: Servers) -> Iterator[_Target]:
    for process in range(PROCESSES):
        yield _Target(_CLIENT, process)
        yield _Target(_LINKS, process)
    yield _Target(_server_faults(backend, servers))
    yield _Target(_RESOURCE)


def _server_faults(backend: str, servers: Servers) -> Sequence[Kind]:
    if servers == "clocked":
        return *_SERVER, *_JUMPS
    if servers == "replicated":
        # A frozen leader of etcd may revoke leases that its successor keeps alive (etcd#15247).
        return *(kind for kind in _SERVER if (backend, kind) != ("etcd", "lock server frozen")), *_FAILOVERS
    return _SERVER


def nodes_of(backend: str, servers: Servers) -> int:
    """How many lock servers a client talks to; of Redis, only to the one that is the primary."""
    quorum = servers == "replicated" and "redis" not in backend
    return _MEMBERS if quorum else INSTALLATIONS[backend].votes


def _lane(
    rng: random.Random, target: _Target, backend: str, servers: Servers, seconds: float
) -> tuple[PlannedFault, ...]:
    ttl = INSTALLATIONS[backend].shortest_ttl
    faults: list[PlannedFault] = []
    at = rng.uniform(0.2, 1.0)
    while at < 0.8 * seconds:
        fault = _fault(rng, rng.choice(target.kinds), at, target.process, backend, servers)
        faults.append(fault)
        at += fault.seconds + rng.uniform(1.0, 4.0) * max(ttl, 0.5)
    return tuple(faults)


def _fault(
    rng: random.Random, kind: Kind, at: float, process: int, backend: str, servers: Servers
) -> PlannedFault:
    # In a fixed order, whatever the kind uses of it: a change to one kind leaves the others as they are.
    ttl = INSTALLATIONS[backend].shortest_ttl
    length = rng.uniform(0.3, _LONGEST_FAULT) * ttl
    count = nodes_of(backend, servers)
    most = rng.choice((1, 1, 2, 3))
    if servers == "replicated" and kind.startswith("lock server"):
        most = 1  # a member is up again when the others answer it
    nodes = sorted(rng.sample(range(count), min(count, most)))
    ways = rng.choice((("to server",), ("to client",), ("to server", "to client")))
    lose = rng.random() < 0.5
    name, key = rng.choice(OF_BACKEND[backend]).name, rng.choice(KEYS)
    jump = rng.choice((-1, 1)) * rng.uniform(1.0, _LONGEST_JUMP) * ttl
    if kind != "accident":
        name = key = ""
    if kind in ("failover", "clock jump") or (name and (ACCIDENTS[name].frees or ACCIDENTS[name].forgets)):
        length = ttl + _MARGIN
    return PlannedFault(
        kind,
        round(at, 3),
        round(length, 3),
        process,
        tuple(nodes),
        ways,
        lose,
        accident=name,
        key=key,
        jump=round(jump, 3) if kind == "clock jump" else 0.0,
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
