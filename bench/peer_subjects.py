"""The other lock libraries, with their defaults; tuned where a default is slow by choice."""

import asyncio
import os
import sys
from typing import Any

from bench.subject import LEASE, Blocking, BlockingLock, Lock, PeerLock, Subject


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


class OneAtATime:
    """A lock that the tasks of a process ask for one at a time."""

    fence = None

    def __init__(self, local: asyncio.Lock, lock: Any) -> None:
        self._local = local
        self._lock = lock

    async def acquire(self) -> bool:
        await self._local.acquire()
        try:
            return bool(await self._lock.acquire())
        except BaseException:
            self._local.release()
            raise

    async def release(self, _: Any) -> None:
        try:
            await self._lock.release()
        finally:
            self._local.release()


class RedisPyBehindAsyncio(RedisPyTuned):
    """What a careful user writes: of each process one task at a time asks the server."""

    name = "asyncio.Lock around redis-py Lock, sleep=0.01"

    async def open(self) -> None:
        await super().open()
        self._local: dict[str, asyncio.Lock] = {}

    def lock(self, key: str) -> Lock:
        lock = self._redis.lock(key, timeout=LEASE, sleep=self.sleep)
        return OneAtATime(self._local.setdefault(key, asyncio.Lock()), lock)


class RedisLockPy(Subject):
    """Its module is called `redis_lock`, as python-redis-lock's is: it comes from a folder of its own."""

    name = "redis-lock-py"
    needs = "redis_lock"
    folder = "BENCH_REDIS_LOCK_PY"
    """Environment variable: where `pip install --no-deps --target FOLDER redis-lock-py` has put it."""

    @classmethod
    def installed(cls) -> bool:
        return cls.folder in os.environ

    async def open(self) -> None:
        sys.path.insert(0, os.environ[self.folder])
        import redis.asyncio

        # A waiter subscribes, on a connection beside the one that asks.
        self._redis = redis.asyncio.Redis.from_url(self.url, max_connections=2 * self.contenders + 10)

    def lock(self, key: str) -> Lock:
        from redis_lock.asyncio import RedisLock

        return PeerLock(RedisLock(self._redis, name=key, blocking_timeout=600, expire_timeout=int(LEASE)))


class Coredis(Subject):
    name = "coredis Lock"
    needs = "coredis"

    async def open(self) -> None:
        import coredis

        self._redis = coredis.Redis.from_url(self.url, max_connections=self.contenders + 10)
        await self._redis.__aenter__()

    def lock(self, key: str) -> Lock:
        from coredis.patterns.lock import Lock as CoredisLock

        return PeerLock(CoredisLock(self._redis, key, timeout=LEASE))


class Pottery(Subject):
    name = "pottery AIORedlock"
    needs = "pottery"

    async def open(self) -> None:
        import redis.asyncio

        self._redis = redis.asyncio.Redis.from_url(self.url, max_connections=self.contenders + 10)

    def lock(self, key: str) -> Lock:
        from pottery import AIORedlock

        return PeerLock(AIORedlock(key=key, masters={self._redis}, auto_release_time=LEASE))


class PythonRedisLock(Blocking):
    name = "python-redis-lock (threads)"
    needs = "redis_lock"

    async def open(self) -> None:
        import redis

        self._redis = redis.Redis.from_url(self.url, max_connections=self.contenders + 10)

    def blocking_lock(self, key: str) -> BlockingLock:
        import redis_lock

        lock: BlockingLock = redis_lock.Lock(self._redis, key, expire=int(LEASE))
        return lock


class PatientLock:
    """A lock of portalocker, which says by an exception that it was not acquired."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.release = lock.release

    def acquire(self, *, timeout: float) -> bool:
        from portalocker.exceptions import AlreadyLocked

        try:
            self._lock.acquire(timeout=timeout)
        except AlreadyLocked:
            return False
        return True


class Portalocker(Blocking):
    """A lock is a subscription: each holder has a connection and a thread of its own."""

    name = "portalocker RedisLock (threads)"
    needs = "portalocker"

    async def open(self) -> None:
        import redis

        self._redis = redis.Redis.from_url(self.url, max_connections=3 * self.contenders + 10)

    def blocking_lock(self, key: str) -> BlockingLock:
        import portalocker

        return PatientLock(portalocker.RedisLock(key, connection=self._redis, interrupt_on_lost=False))


PEERS: tuple[type[Subject], ...] = (
    *(RedisPy, RedisPyTuned, RedisPyBehindAsyncio, RedisLockPy),
    *(Coredis, Pottery, PythonRedisLock, Portalocker),
)
