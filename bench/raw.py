"""The raw limit of uncontended locking: the scripts of `redis://`, pipelined by a minimal client.

It packs every request beforehand, keeps no futures, builds no objects and checks nothing but that
the replies are no errors: what is left is Redis, the kernel and the parser.
"""

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import hiredis

from asyncdlock.backends.redis.keys import fence_key
from asyncdlock.backends.redis.spin import ACQUIRE, RELEASE

_pack: Callable[[tuple[str | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


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
        for script in (ACQUIRE, RELEASE):
            await self._exchange(_pack(("SCRIPT", "LOAD", script.source)), 1)

    async def cycles(self, keys: int, seconds: float) -> tuple[int, float]:
        """Acquire and release `keys` locks over and over; (cycles done, seconds taken)."""
        names = [f"raw:{number}" for number in range(keys)]
        acquires = b"".join(
            _pack(("EVALSHA", ACQUIRE.sha, 2, name, fence_key(name), "owner", 10000, 1)) for name in names
        )
        releases = b"".join(_pack(("EVALSHA", RELEASE.sha, 1, name, "owner")) for name in names)
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            await self._exchange(acquires, keys)
            await self._exchange(releases, keys)
            done += keys
        return done, time.perf_counter() - started

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
