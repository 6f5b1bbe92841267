"""Many writers add one to the same value: under a lock, or by compare-and-swap with a version."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncdlock
from asyncdlock import BackendError
from harness.history.distribution import Distribution
from harness.lab.resource_view import ResourceView, Stored
from harness.lab.scale.crowd import crowd
from harness.resource.client import Reply, ResourceClient

CONNECTIONS = 100
_FIRST_DELAY, _LONGEST_DELAY = 0.002, 1.0


@dataclass(slots=True)
class Increments:
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


KEY = "value"


async def _read(resource: ResourceView, fence: int | None = None) -> tuple[int, Stored]:
    found = await resource.get(KEY, fence)
    return int(found.body or 0), found


@asynccontextmanager
async def open_resource(url: str) -> AsyncIterator[ResourceView]:
    async with ResourceClient(url, connections=CONNECTIONS) as client:
        yield ResourceView(client)


def _stored(reply: Reply) -> bool:
    """Whether it was, or the value had changed since it was read.

    :raises BackendError: neither: there was no usable answer.
    """
    if reply.write != "accepted" and not reply.conflict:
        raise BackendError(f"the value could not be written: {reply.error or reply.write}")
    return reply.write == "accepted"


async def by_swap(
    resource: ResourceView, writers: int, *, work: float, seconds: float, seed: int
) -> Increments:
    """Read, work, write if unchanged; else back off at random and start again."""
    rng = random.Random(seed)

    async def add(counted: Increments, until: float) -> bool:
        longest = _FIRST_DELAY
        while True:
            number, found = await _read(resource)
            await asyncio.sleep(work)
            if _stored(await resource.put(KEY, str(number + 1).encode(), found=found)):
                return True
            counted.refused += 1
            if time.perf_counter() > until:
                return False
            await asyncio.sleep(rng.uniform(0, longest))
            longest = min(longest * 2, _LONGEST_DELAY)

    return await _all(resource, writers, seconds, add)


async def by_lock(
    resource: ResourceView, locks: asyncdlock.LockClient, writers: int, *, work: float, seconds: float
) -> Increments:
    """Acquire, read, work, write with the fence, release."""

    async def add(counted: Increments, until: float) -> bool:
        try:
            handle = await locks.acquire("counter", ttl=30.0, timeout=max(until - time.perf_counter(), 0.01))
        except asyncdlock.AcquireTimeout:
            return False
        try:
            number, _ = await _read(resource, handle.fence)
            await asyncio.sleep(work)
            _stored(await resource.put(KEY, str(number + 1).encode(), fence=handle.fence))
        finally:
            await handle.release()
        return True

    return await _all(resource, writers, seconds, add)


async def _all(
    resource: ResourceView, writers: int, seconds: float, add: Callable[[Increments, float], Awaitable[bool]]
) -> Increments:
    """Every writer adds again and again until the time is up."""
    start, _ = await _read(resource)
    counted = Increments(writers)
    began = time.perf_counter()
    until = began + seconds

    async def one() -> None:
        while (at := time.perf_counter()) < until:
            if await add(counted, until):
                counted.done += 1
                counted.waits_ns.append(round((time.perf_counter() - at) * 1e9))

    await crowd(writers, one)
    counted.seconds = time.perf_counter() - began
    counted.value = (await _read(resource))[0] - start
    return counted
