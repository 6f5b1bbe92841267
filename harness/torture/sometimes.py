"""Rare paths: torture that never visited one has shown nothing about it."""

from collections import Counter
from collections.abc import Mapping, Sequence

_EVERYWHERE = (
    "lost lease noticed",
    "body ended with its lease",
    "renewal unknown",
    "renewal refused",
    "release by a non-owner",
    "wait timed out",
    "cancelled",
    "call failed, in doubt",
    "holder killed with the lock in hand",
    "holder displaced before it wrote",
    "stale read refused",
    "stale write refused",
    "write without an answer",
    "reconnected",
    "lock taken away by an accident",
    "lock server disk full",
    "resource disk full",
)
_REDIS = ("NOSCRIPT answered", "OOM answered", "fence regression repaired", "clock jump")
FAULTS = frozenset({"lock server disk full", "resource disk full", "clock jump", "failover"})
"""Which of them are faults themselves: not every round's servers can have them."""
_SOME: Mapping[str, Sequence[str]] = {
    "redis": (*_REDIS, "failover"),
    "redis-queue": (*_REDIS, "failover", "step of the server replayed", "replay resumed behind a gap"),
    "redlock": _REDIS,
    "etcd": ("failover",),
    "zookeeper": ("failover",),
    "postgres": ("fence regression repaired",),
}


def rare_paths(backend: str) -> tuple[str, ...]:
    """Those that this backend has."""
    return (*_EVERYWHERE, *_SOME.get(backend, ()))


def not_visited(backend: str, visited: Counter[str]) -> list[str]:
    return [path for path in rare_paths(backend) if not visited[path]]
