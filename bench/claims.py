"""The ratios that we claim, computed from the figures of one run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.peer_subjects import PEERS, RedisPy
from bench.subjects import Queue, Raw, Spin, StrictQueue

Table = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure against another, and what it should at least (or at most) be."""

    text: str
    workload: str
    value: Callable[[Mapping[str, Table]], float]
    bound: float
    at_most: bool = False
    allowed: Callable[[Mapping[str, Table]], float] | None = None
    """The same ratio for the raw limit, where that is what bounds ours: no client could do better."""

    def holds(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


def _rate(table: Table, name: str) -> float:
    return float(table[name]["sections_per_s"])


def _best_peer(table: Table) -> float:
    rates = [_rate(table, peer.name) for peer in PEERS if peer.name in table]
    if not rates:
        raise KeyError("no peer did this work")
    return max(rates)


def _against_peers(workload: str, ours: str) -> Callable[[Mapping[str, Table]], float]:
    return lambda tables: _rate(tables[workload], ours) / _best_peer(tables[workload])


def _of(workload: str, name: str, figure: str) -> Callable[[Mapping[str, Table]], float]:
    return lambda tables: float(tables[workload][name][figure])


ONE, HUNDRED = "own keys, 1 task", "own keys, 100 tasks"
HOT_50, HOT_1000 = "hot key, 50 contenders, 1 process", "hot key, 1000 contenders, 1 process"
HOT_200_4 = "hot key, 200 contenders, 4 processes"

CLAIMS = (
    Claim(
        "own keys, 100 tasks / fastest peer",
        HUNDRED,
        _against_peers(HUNDRED, Spin.name),
        5,
        allowed=_against_peers(HUNDRED, Raw.name),
    ),
    Claim(
        "own keys, 100 tasks / raw limit",
        HUNDRED,
        lambda tables: _rate(tables[HUNDRED], Spin.name) / _rate(tables[HUNDRED], Raw.name),
        0.35,
    ),
    Claim(
        "own keys, 1 task / redis-py",
        ONE,
        lambda tables: _rate(tables[ONE], Spin.name) / _rate(tables[ONE], RedisPy.name),
        1.5,
    ),
    Claim(
        "hot key, 1000 contenders, redis-queue / fastest peer",
        HOT_1000,
        _against_peers(HOT_1000, Queue.name),
        30,
    ),
    Claim(
        "hot key, 4 processes, strict FIFO / fastest peer",
        HOT_200_4,
        _against_peers(HOT_200_4, StrictQueue.name),
        2,
    ),
    Claim(
        "hot key, 4 processes, local hand-off / fastest peer",
        HOT_200_4,
        _against_peers(HOT_200_4, Queue.name),
        10,
    ),
    Claim(
        "client CPU per cycle, 100 tasks / redis-py",
        HUNDRED,
        lambda tables: (
            tables[HUNDRED][Spin.name]["client_cpu_us"] / tables[HUNDRED][RedisPy.name]["client_cpu_us"]
        ),
        0.15,
        at_most=True,
    ),
    Claim(
        "hot key, 1000 / 50 contenders, redis-queue",
        HOT_1000,
        lambda tables: _rate(tables[HOT_1000], Queue.name) / _rate(tables[HOT_50], Queue.name),
        0.8,
    ),
    Claim(
        "hot key, 1000 contenders: Jain index, strict FIFO",
        HOT_1000,
        _of(HOT_1000, StrictQueue.name, "jain"),
        0.99,
    ),
    Claim(
        "hot key, 1000 contenders: Jain index, hand-off", HOT_1000, _of(HOT_1000, Queue.name, "jain"), 0.99
    ),
    Claim(
        "starved contenders, strict FIFO, 4 processes",
        HOT_200_4,
        _of(HOT_200_4, StrictQueue.name, "starved"),
        0,
        at_most=True,
    ),
    Claim(
        "commands per section, strict FIFO",
        HOT_200_4,
        _of(HOT_200_4, StrictQueue.name, "commands_per_section"),
        2.05,
        at_most=True,
    ),
    Claim(
        "commands per section, hand-off",
        HOT_200_4,
        _of(HOT_200_4, Queue.name, "commands_per_section"),
        0.2,
        at_most=True,
    ),
)
