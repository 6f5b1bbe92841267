"""What is measured on five Redis nodes: our Redlock, those of others, and the raw limit."""

from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio

from bench.raw import RawConnection
from bench.subject import LEASE, Lock, PeerLock, Subject
from bench.subjects import Ours, Raw


def nodes_of(url: str) -> list[str]:
    """The nodes of a `redlock://` URL, as one for each."""
    return [f"redis://{address}" for address in urlsplit(url).netloc.split(",")]


class Redlock(Ours):
    """A client's own contenders queue in it; what goes to the nodes is the plain recipe."""

    name = "asyncdlock"
    scheme = "redlock"


class PlainRedlock(Redlock):
    name = "asyncdlock, local_queue=off"
    query = "?local_queue=off"


class PotteryOnFive(Subject):
    name = "pottery AIORedlock"
    needs = "pottery"

    async def open(self) -> None:
        self._masters = {
            redis.asyncio.Redis.from_url(node, max_connections=self.contenders + 10)
            for node in nodes_of(self.url)
        }

    def lock(self, key: str) -> Lock:
        from pottery import AIORedlock

        return PeerLock(AIORedlock(key=key, masters=self._masters, auto_release_time=LEASE))


class RedlockNG(Subject):
    """Asks for redis-py before 6: `pip install --no-deps redlock-ng` puts it beside later ones."""

    name = "redlock-ng"
    needs = "redlock"

    async def open(self) -> None:
        from redlock import AsyncRedlock

        self._lock = AsyncRedlock(nodes_of(self.url))

    def lock(self, key: str) -> Lock:
        return _NGLock(self._lock, key)


class _NGLock:
    fence = None

    def __init__(self, redlock: Any, key: str) -> None:
        self.acquire = lambda: redlock.acquire(key, int(1000 * LEASE), blocking=True)
        self.release = redlock.release


class RawOnFive(Raw):
    """The limit: the very scripts, sent to five nodes at once by a client that does nothing else."""

    name = "five raw round trips"

    async def open(self) -> None:
        self._connections = [RawConnection(node) for node in nodes_of(self.url)]
        for connection in self._connections:
            await connection.open()

    async def cycles(self, keys: int, seconds: float) -> tuple[int, float]:
        return await RawConnection.cycles_on(self._connections, keys, seconds)


ALL: tuple[type[Subject], ...] = (Redlock, PlainRedlock, PotteryOnFive, RedlockNG, RawOnFive)
PEERS: tuple[type[Subject], ...] = (PotteryOnFive, RedlockNG)
