"""The raw limit of uncontended locking: the scripts of `redis://`, pipelined by a minimal client.

It packs every request beforehand, keeps no futures, builds no objects and checks nothing but that
the replies are no errors: what is left is Redis, the kernel and the parser.
"""

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import hiredis

from asyncdlock.backends.redis import requests
from asyncdlock.backends.redis.stream import pack
from asyncdlock.types import Claim, owners
from bench.subject import LEASE


class RawConnection(asyncio.Protocol):
    """One connection on which batches of requests are written ahead and their replies counted."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "127.0.0.1", parts.port or 6379
        self._reader = hiredis.Reader()
        self._expected = 0
        self._done: asyncio.Future[None] | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, *self._address)
        for script in (requests.ACQUIRE, requests.RELEASE):
            await self._exchange(pack(("SCRIPT", "LOAD", script.source)), 1)

    async def cycles(self, keys: int, seconds: float) -> tuple[int, float]:
        """Acquire and release `keys` locks over and over; (cycles done, seconds taken)."""
        return await self.cycles_on([self], keys, seconds)

    @staticmethod
    async def cycles_on(
        connections: Sequence["RawConnection"], keys: int, seconds: float
    ) -> tuple[int, float]:
        """The same on several servers at once, each of which does all of it."""
        names = [f"raw:{number}" for number in range(keys)]
        claims = [Claim(name, owner, LEASE) for name, owner in zip(names, owners(), strict=False)]
        acquires = b"".join(requests.acquire(claim, 1) for claim in claims)
        releases = b"".join(requests.release(claim) for claim in claims)
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            for batch in (acquires, releases):
                sent = [connection._exchange(batch, keys) for connection in connections]
                await (sent[0] if len(sent) == 1 else asyncio.gather(*sent))
            done += keys
        return done, time.perf_counter() - started

    def close(self) -> None:
        self._transport.close()

    async def _exchange(self, requests: bytes, replies: int) -> None:
        self._expected = replies
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(requests)
        await self._done

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise reply
            self._expected -= 1
        if self._expected == 0 and self._done is not None and not self._done.done():
            self._done.set_result(None)
