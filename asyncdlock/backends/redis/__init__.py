"""Redis: `redis://` (plain recipe) and `redis-queue://` (fair, pushed); URLs and options."""

from typing import Any

from asyncdlock.backends.redis.server import Server
from asyncdlock.backends.redis.spin import SpinBackend
from asyncdlock.backends.redis.url import RedisURL


def spin_from_url(url: str, **options: Any) -> SpinBackend:
    """The backend behind `redis://`, `rediss://` and `unix://`."""
    where = RedisURL.parse(url, options, known={"local_queue": bool, "local_handoffs": int})
    return SpinBackend(Server(where.opener(), call_timeout=where.call_timeout), **where.ours)
