"""Redis: `redis://` (plain recipe) and `redis-queue://` (fair, pushed); URLs and options."""

from typing import Any

from asyncdlock.backends.redis.cluster import Cluster
from asyncdlock.backends.redis.fence_counter import PER_KEY, FenceCounter, fence_counter
from asyncdlock.backends.redis.queue import QueueBackend
from asyncdlock.backends.redis.server import Server
from asyncdlock.backends.redis.spin import SpinBackend
from asyncdlock.backends.redis.url import RedisURL

_LOCAL_HANDOFFS = 256
_KNOWN = {"local_queue": bool, "local_handoffs": int, "fence_counter": str, "fence_life": float}


def spin_from_url(url: str, **options: Any) -> SpinBackend:
    """The backend behind `redis://`, `rediss://` and `unix://`."""
    where = RedisURL.parse(url, options, known=_KNOWN)
    ours = dict(where.ours)
    return SpinBackend(_server(where), counter=_counter(ours), **ours)


def queue_from_url(url: str, **options: Any) -> QueueBackend:
    """The backend behind `redis-queue://`, `rediss-queue://` and `unix-queue://`.

    `local_handoffs=0` alone means strict global FIFO: every waiter has its own place in Redis.
    """
    where = RedisURL.parse(url, options, known={**_KNOWN, "max_waiters": int, "patience": float})
    ours = dict(where.ours)
    ours.setdefault("local_handoffs", _LOCAL_HANDOFFS)
    ours.setdefault("local_queue", ours["local_handoffs"] > 0)
    if not ours["local_queue"]:
        ours["local_handoffs"] = 0
    return QueueBackend(_server(where), counter=_counter(ours), **ours)


def _counter(ours: dict[str, Any]) -> FenceCounter:
    """What the options say of fence counters; they are removed."""
    return fence_counter(ours.pop("fence_counter", PER_KEY), ours.pop("fence_life", None))


def _server(where: RedisURL) -> Server | Cluster:
    if where.topology == "cluster":
        where.opener_to(*where.hosts[0])  # refuses bad options here, not when the first node is asked
        return Cluster(where.hosts, where.opener_to, **where.wire)
    return Server(where.opener(), **where.wire)
