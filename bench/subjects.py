"""What is measured: our backends, other lock libraries, and the raw limit, behind one small face.

A subject makes one contender's lock at a time. Peers run with their defaults; where a default is
slow by choice (a poll every 100 ms) a tuned variant runs beside it, so that nobody is beaten by a
setting.
"""

from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any, Protocol

import asyncdlock
from asyncdlock._inside import backend_of

LEASE = 10.0


class Lock(Protocol):
    """One contender's lock on one key: the library's own calls, so that no wrapper is measured along."""

    @property
    def acquire(self) -> Callable[[], Awaitable[Any]]:
        """Waits for the lock; what `release` and `fence` take. `False`: not acquired."""
        ...

    @property
    def release(self) -> Callable[[Any], Awaitable[Any]]: ...
    @property
    def fence(self) -> Callable[[Any], int] | None:
        """The fence of what was acquired, where the library has one."""
        ...


class Subject:
    """A library in a process: opened once, then one lock per contender. Never closed: the process ends."""

    name = ""

    def __init__(self, url: str, contenders: int) -> None:
        self.url = url
        self.contenders = contenders

    async def open(self) -> None:
        raise NotImplementedError

    def lock(self, key: str) -> Lock:
        raise NotImplementedError

    @property
    def commands(self) -> int | None:
        """Commands sent so far, where the library counts them."""
        return None


class OurLock:
    """A lock of ours, as often as it is wanted."""

    release = staticmethod(asyncdlock.Handle.release)
    fence = staticmethod(attrgetter("fence"))

    def __init__(self, client: asyncdlock.LockClient, key: str, ttl: float = LEASE) -> None:
        self.acquire = lambda: client.acquire(key, ttl=ttl)


class Ours(Subject):
    """One of our backends, by its scheme and options."""

    scheme = ""
    query = ""

    async def open(self) -> None:
        server = self.url.partition("://")[2]
        self._client = asyncdlock.connect(f"{self.scheme}://{server}{self.query}")

    def lock(self, key: str) -> Lock:
        return OurLock(self._client, key)

    @property
    def commands(self) -> int:
        return backend_of(self._client).commands


class Spin(Ours):
    name = "asyncdlock redis"
    scheme = "redis"


class Queue(Ours):
    name = "asyncdlock redis-queue"
    scheme = "redis-queue"


class StrictQueue(Ours):
    name = "asyncdlock redis-queue, strict FIFO"
    scheme = "redis-queue"
    query = "?local_handoffs=0"


class PeerLock:
    """A peer whose lock has `acquire` and `release` coroutines."""

    fence = None

    def __init__(self, lock: Any) -> None:
        self.acquire: Callable[[], Awaitable[Any]] = lock.acquire
        self.release: Callable[[Any], Awaitable[Any]] = lambda _: lock.release()


class RedisPy(Subject):
    name = "redis-py Lock"
    sleep = 0.1

    async def open(self) -> None:
        import redis.asyncio

        # A pool as large as the fleet: a smaller one refuses connections, it does not queue.
        self._redis = redis.asyncio.Redis.from_url(self.url, max_connections=self.contenders + 10)

    def lock(self, key: str) -> Lock:
        return PeerLock(self._redis.lock(key, timeout=LEASE, sleep=self.sleep))


class RedisPyTuned(RedisPy):
    name = "redis-py Lock, sleep=0.01"
    sleep = 0.01


class Coredis(Subject):
    name = "coredis Lock"

    async def open(self) -> None:
        import coredis

        self._redis = coredis.Redis.from_url(self.url, max_connections=self.contenders + 10)
        await self._redis.__aenter__()

    def lock(self, key: str) -> Lock:
        from coredis.patterns.lock import Lock as CoredisLock

        return PeerLock(CoredisLock(self._redis, key, timeout=LEASE))


class Pottery(Subject):
    name = "pottery AIORedlock"

    async def open(self) -> None:
        import redis.asyncio

        self._redis = redis.asyncio.Redis.from_url(self.url, max_connections=self.contenders + 10)

    def lock(self, key: str) -> Lock:
        from pottery import AIORedlock

        return PeerLock(AIORedlock(key=key, masters={self._redis}, auto_release_time=LEASE))


class BlockingLock(Protocol):
    """One contender's lock, for threads."""

    def acquire(self, *, timeout: float) -> bool: ...
    def release(self) -> object: ...


class Blocking(Subject):
    """A library for threads: `bench.work` drives it there, without asyncio."""

    def blocking_lock(self, key: str) -> BlockingLock:
        raise NotImplementedError


class PythonRedisLock(Blocking):
    name = "python-redis-lock (threads)"

    async def open(self) -> None:
        import redis

        self._redis = redis.Redis.from_url(self.url, max_connections=self.contenders + 10)

    def blocking_lock(self, key: str) -> BlockingLock:
        import redis_lock

        lock: BlockingLock = redis_lock.Lock(self._redis, key, expire=int(LEASE))
        return lock


class Raw(Subject):
    """The limit: the very scripts of `redis://`, written ahead by a client that does nothing else."""

    name = "raw limit"

    async def open(self) -> None:
        from bench.raw import RawConnection

        self._connection = RawConnection(self.url)
        await self._connection.open()

    async def cycles(self, keys: int, seconds: float) -> tuple[int, float]:
        return await self._connection.cycles(keys, seconds)


OURS: tuple[type[Subject], ...] = (Spin, Queue, StrictQueue)
PEERS: tuple[type[Subject], ...] = (RedisPy, RedisPyTuned, Coredis, Pottery, PythonRedisLock)
_ALL: tuple[type[Subject], ...] = (*OURS, *PEERS, Raw)
SUBJECTS = {subject.name: subject for subject in _ALL}
