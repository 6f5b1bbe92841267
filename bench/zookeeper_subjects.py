"""What is measured on ZooKeeper: our backend, and kazoo's Lock in threads."""

from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

from bench.subjects import LEASE, Blocking, BlockingLock, Ours, Subject


class ZooKeeper(Ours):
    name = "asyncdlock"
    scheme = "zookeeper"


class HandOff(ZooKeeper):
    name = "asyncdlock, local_handoffs=16"
    query = "?local_handoffs=16"


class Kazoo(Blocking):
    name = "kazoo Lock (threads)"

    async def open(self) -> None:
        self._client = KazooClient(self.url.partition("://")[2], timeout=LEASE)
        self._client.start()

    def blocking_lock(self, key: str) -> BlockingLock:
        return _KazooLock(self._client.Lock(f"/locks/{key}"))


class _KazooLock:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, *, timeout: float) -> bool:
        try:
            return bool(self._lock.acquire(timeout=timeout))
        except LockTimeout:
            return False

    def release(self) -> None:
        self._lock.release()


ALL: tuple[type[Subject], ...] = (ZooKeeper, HandOff, Kazoo)
