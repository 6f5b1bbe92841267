"""Many writers add one to the same value: under a lock, or by compare-and-swap with a version."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

import asyncdlock
from harness.distribution import Distribution
from harness.experiments.scale.crowd import crowd

CONNECTIONS = 100
_FIRST_DELAY, _LONGEST_DELAY = 0.002, 1.0


@dataclass(slots=True)
class Tally:
    """What the writers of one run did."""

    writers: int = 0
    done: int = 0
    refused: int = 0
    """Tries whose work was thrown away because somebody else had been quicker."""
    seconds: float = 0.0
    value: int = 0
    """What the resource holds at the end: as many as were done, or updates were lost."""
    waits_ns: list[int] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def p99_ms(self) -> float:
        """What one in a hundred additions took longer than, from its first try on."""
        return Distribution(self.waits_ns).percentiles(99)[0] / 1e6

    @property
    def wasted(self) -> float:
        """The share of all tries that was thrown away."""
        tries = self.done + self.refused
        return self.refused / tries if tries else 0.0


class Value:
    """One number behind HTTP, read and written with its version."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def read(self, fence: int | None = None) -> tuple[int, str | None]:
        """The number, and the tag of its version; (0, None) when there is none yet."""
        headers = {} if fence is None else {"X-Fence-Token": str(fence)}
        async with self._session.get(self._url, headers=headers) as reply:
            body = await reply.read()
            if reply.status == 404:
                return 0, None
            reply.raise_for_status()
            return int(body), reply.headers["ETag"]

    async def swap(self, number: int, tag: str | None) -> bool:
        """Write if nobody has written since `tag`."""
        headers = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
        async with self._session.put(self._url, data=str(number).encode(), headers=headers) as reply:
            await reply.read()
            if reply.status == 412:
                return False
            reply.raise_for_status()
            return True

    async def write(self, number: int, fence: int) -> None:
        """:raises aiohttp.ClientResponseError: the fence is stale."""
        headers = {"X-Fence-Token": str(fence)}
        async with self._session.put(self._url, data=str(number).encode(), headers=headers) as reply:
            await reply.read()
            reply.raise_for_status()


@asynccontextmanager
async def open_value(url: str, key: str) -> AsyncIterator[Value]:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Value(session, f"{url}/r/{key}")
    await asyncio.sleep(0)


async def by_swap(value: Value, writers: int, *, work: float, seconds: float, seed: int) -> Tally:
    """Read, work, write if unchanged; else back off at random and start again."""
    rng = random.Random(seed)

    async def add(tally: Tally, until: float) -> bool:
        longest = _FIRST_DELAY
        while True:
            number, tag = await value.read()
            await asyncio.sleep(work)
            if await value.swap(number + 1, tag):
                return True
            tally.refused += 1
            if time.perf_counter() > until:
                return False
            await asyncio.sleep(rng.uniform(0, longest))
            longest = min(longest * 2, _LONGEST_DELAY)

    return await _all(value, writers, seconds, add)


async def by_lock(
    value: Value, locks: asyncdlock.LockClient, writers: int, *, work: float, seconds: float
) -> Tally:
    """Acquire, read, work, write with the fence, release."""

    async def add(tally: Tally, until: float) -> bool:
        try:
            handle = await locks.acquire("counter", ttl=30.0, timeout=max(until - time.perf_counter(), 0.01))
        except asyncdlock.AcquireTimeout:
            return False
        try:
            number, _ = await value.read(handle.fence)
            await asyncio.sleep(work)
            await value.write(number + 1, handle.fence)
        finally:
            await handle.release()
        return True

    return await _all(value, writers, seconds, add)


async def _all(
    value: Value, writers: int, seconds: float, add: Callable[[Tally, float], Awaitable[bool]]
) -> Tally:
    """Every writer adds again and again until the time is up."""
    start, _ = await value.read()
    tally = Tally(writers)
    began = time.perf_counter()
    until = began + seconds

    async def one() -> None:
        while (at := time.perf_counter()) < until:
            if await add(tally, until):
                tally.done += 1
                tally.waits_ns.append(round((time.perf_counter() - at) * 1e9))

    await crowd(writers, one)
    tally.seconds = time.perf_counter() - began
    tally.value = (await value.read())[0] - start
    return tally
