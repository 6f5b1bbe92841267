"""What is measured: our backends, other lock libraries, and the raw limit, behind one small face.

A subject makes one contender's lock at a time. Peers run with their defaults; where a default is
slow by choice (a poll every 100 ms) a tuned variant runs beside it, so that nobody is beaten by a
setting.
"""

from operator import attrgetter

import asyncdlock
from asyncdlock._inside import backend_of
from bench.peer_subjects import PEERS
from bench.subject import LEASE, Lock, Subject


class OurLock:
    """A lock of ours, as often as it is wanted."""

    release = staticmethod(asyncdlock.Handle.release)
    fence = staticmethod(attrgetter("fence"))

    def __init__(
        self, client: asyncdlock.LockClient, key: str, ttl: float = LEASE, timeout: float | None = None
    ) -> None:
        self.acquire = lambda: client.acquire(key, ttl=ttl, timeout=timeout)


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


class SpinInTime(Spin):
    name = "asyncdlock redis, timeout=30"

    def lock(self, key: str) -> Lock:
        return OurLock(self._client, key, timeout=30.0)


class Queue(Ours):
    name = "asyncdlock redis-queue, local hand-off"
    scheme = "redis-queue"


class StrictQueue(Ours):
    name = "asyncdlock redis-queue, strict FIFO"
    scheme = "redis-queue"
    query = "?local_handoffs=0"


class Raw(Subject):
    """The limit: the very scripts of `redis://`, written ahead by a client that does nothing else."""

    name = "raw limit"

    async def open(self) -> None:
        from bench.raw import RawConnection

        self._connection = RawConnection(self.url)
        await self._connection.open()

    async def warm_up(self, keys: int) -> None:
        """Bring a server that compiles its code as it runs to its speed."""

    async def cycles(self, keys: int, seconds: float) -> tuple[int, float]:
        return await self._connection.cycles(keys, seconds)


OURS: tuple[type[Subject], ...] = (Spin, Queue, StrictQueue)
_ALL: tuple[type[Subject], ...] = (*OURS, SpinInTime, *PEERS, Raw)
SUBJECTS = {subject.name: subject for subject in _ALL}
