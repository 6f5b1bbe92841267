"""What many short-lived locks leave in etcd: leases, revisions, and a database file that only grows."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from harness.lab.scale.crowd import crowd
from harness.servers import EtcdNode

_IN_FLIGHT = 32


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of the database: the file, and what of it is used."""

    file: int
    in_use: int


class Gateway:
    """etcd's JSON interface over one pool of connections."""

    def __init__(self, node: EtcdNode, session: aiohttp.ClientSession, *, lease_ttl: int = 5) -> None:
        self._root = node.client_url
        self._session = session
        self._lease_ttl = lease_ttl

    async def call(self, path: str, **message: Any) -> dict[str, Any]:
        """:raises aiohttp.ClientError: etcd refused it or cannot be reached."""
        async with self._session.post(f"{self._root}/v3/{path}", json=message) as reply:
            reply.raise_for_status()
            answer: dict[str, Any] = await reply.json()
            return answer

    async def size(self) -> Size:
        status = await self.call("maintenance/status")
        return Size(int(status["dbSize"]), int(status.get("dbSizeInUse", 0)))

    async def leases(self) -> int:
        return len((await self.call("lease/leases")).get("leases", []))

    async def lock(self, number: int) -> None:
        """One lease and one key under it: what one holder leaves."""
        lease = (await self.call("lease/grant", TTL=self._lease_ttl))["ID"]
        key = base64.b64encode(f"/locks/account:{number}/{lease}".encode()).decode()
        await self.call("kv/put", key=key, value="b3duZXI=", lease=lease)

    async def rewrite(self, number: int) -> None:
        """One more revision of one of a hundred keys."""
        key = base64.b64encode(f"/state/{number % 100}".encode()).decode()
        await self.call("kv/put", key=key, value=base64.b64encode(b"x" * 100).decode())


async def many(count: int, one: Callable[[int], Awaitable[None]]) -> float:
    """Do something this many times, some at once; returns how many per second."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await one(number)

    began = time.perf_counter()
    await crowd(_IN_FLIGHT, work)
    return count / (time.perf_counter() - began)


async def until_expired(gateway: Gateway, limit: float) -> float | None:
    """Seconds until no lease is left; `None` when some still are at the limit."""
    began = time.perf_counter()
    while time.perf_counter() - began < limit:
        if not await gateway.leases():
            return time.perf_counter() - began
        await asyncio.sleep(0.1)
    return None
