"""What a subject of the benchmarks is: a library in a process, and one contender's lock of it."""

import importlib.util
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

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
    needs = "redis"
    """The module of its library."""

    def __init__(self, url: str, contenders: int) -> None:
        self.url = url
        self.contenders = contenders

    @classmethod
    def installed(cls) -> bool:
        return importlib.util.find_spec(cls.needs) is not None

    async def open(self) -> None:
        raise NotImplementedError

    def lock(self, key: str) -> Lock:
        raise NotImplementedError

    @property
    def commands(self) -> int | None:
        """Commands sent so far, where the library counts them."""
        return None


class PeerLock:
    """A peer whose lock has `acquire` and `release` coroutines."""

    fence = None

    def __init__(self, lock: Any) -> None:
        self.acquire: Callable[[], Awaitable[Any]] = lock.acquire
        self.release: Callable[[Any], Awaitable[Any]] = lambda _: lock.release()


class BlockingLock(Protocol):
    """One contender's lock, for threads."""

    def acquire(self, *, timeout: float) -> bool: ...
    def release(self) -> object: ...


class Blocking(Subject):
    """A library for threads: `bench.work` drives it there, without asyncio."""

    def blocking_lock(self, key: str) -> BlockingLock:
        raise NotImplementedError
