"""etcd: a lease and a queue ordered by create revision, shared with Go's `concurrency.Mutex`."""

from typing import Any

from asyncdlock.backends.etcd.lock import FENCE_SCALE, EtcdBackend, Stats
from asyncdlock.backends.etcd.settings import parse

__all__ = ["FENCE_SCALE", "EtcdBackend", "Stats", "from_url"]


def from_url(url: str, **options: Any) -> EtcdBackend:
    """The backend for `etcd://` and `etcds://`; connects when it is first used.

    :raises ValueError: a malformed URL, an unknown option or a value out of range.
    """
    return EtcdBackend(parse(url, options))
