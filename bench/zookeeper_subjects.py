"""What is measured on ZooKeeper: our backend, kazoo's Lock in threads, and the server's own rate."""

import asyncio
import contextlib
import time
from typing import Any
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NodeExistsError
from kazoo.protocol.serialization import Create, Create2, Delete
from kazoo.security import OPEN_ACL_UNSAFE

from asyncdlock.backends.zookeeper.session import Ensemble, Session
from asyncdlock.backends.zookeeper.wire import Tally
from bench.subject import LEASE, Blocking, BlockingLock, Subject
from bench.subjects import Ours, Raw


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


class Writes(Raw):
    """The limit: what a section writes and reads, the delete of one together with the create of the next."""

    name = "the server's own rate"

    async def open(self) -> None:
        where = urlsplit(self.url)
        ensemble = Ensemble(hosts=[(where.hostname or "", where.port or 2181)], connect_timeout=5.0)
        self._wire = await Session(ensemble, LEASE, Tally()).wire()

    async def warm_up(self, keys: int) -> None:
        await self.cycles(keys, _WARM_UP)

    async def cycles(self, keys: int, seconds: float) -> tuple[int, float]:
        wire = self._wire
        done = 0

        async def repeat(number: int, end: float) -> None:
            nonlocal done
            parent = f"/raw-{number}"
            create = Create2(f"{parent}/x-", b"owner", OPEN_ACL_UNSAFE, _EPHEMERAL)
            with contextlib.suppress(NodeExistsError):
                await wire.send(Create(parent, b"", OPEN_ACL_UNSAFE, 0))
            node = (await wire.send(create))[0]
            while time.perf_counter() < end:
                deleted, created, queue = wire.send(Delete(node, -1)), wire.send(create), wire.list(parent)
                node = (await created)[0]
                await queue
                await deleted
                done += 1

        began = time.perf_counter()
        await asyncio.gather(*(repeat(number, began + seconds) for number in range(keys)))
        return done, time.perf_counter() - began


_EPHEMERAL = 3  # and sequential
_WARM_UP = 1.0  # as the others have

ALL: tuple[type[Subject], ...] = (ZooKeeper, HandOff, Kazoo, Writes)
