"""A process that is killed (kill -9) with a shared lock or a permit: that comes back after its TTL."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import asyncdlock
from tests.contract.cases import backends

pytestmark = [
    pytest.mark.faults,
    backends(
        that=lambda can: can.shared and can.interprocess
    ),  # the locks of the others end with their process
]


@asynccontextmanager
async def holding(
    url: str, key: str, kind: str, ttl: float
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A process that holds the key, and the fence that it has."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.contract.holding",
        url,
        key,
        kind,
        str(ttl),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60.0):
            yield child, int(await child.stdout.readline())
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_a_killed_reader_keeps_the_writer_out_for_a_ttl(
    url: str, locks: asyncdlock.LockClient, key: str
) -> None:
    async with holding(url, key, "shared", 2.0) as (doomed, fence):
        beside = await locks.acquire(key, shared=True, timeout=30.0)
        writer = asyncio.create_task(_write(locks, key))
        doomed.kill()
        await doomed.wait()
        assert await beside.release()
        assert await locks.try_acquire(key) is None, "its lease had not ended"
        granted = await writer
        assert granted.fence > fence
        assert await granted.release()


async def _write(locks: asyncdlock.LockClient, key: str) -> asyncdlock.Handle:
    return await locks.acquire(key, timeout=60.0)


async def test_a_killed_holder_of_a_permit_gives_it_back_after_a_ttl(
    url: str, locks: asyncdlock.LockClient, key: str
) -> None:
    semaphore = locks.semaphore(key, permits=2)
    kept = await semaphore.acquire()
    async with holding(url, key, "2", 2.0) as (doomed, fence):
        assert await semaphore.try_acquire() is None
        doomed.kill()
        await doomed.wait()
        assert await semaphore.try_acquire() is None, "its lease had not ended"
        got = await semaphore.acquire(timeout=60.0)
        assert got.fence > fence
        assert kept.held
        assert await semaphore.try_acquire() is None
        assert await got.release()
        assert await kept.release()


async def test_a_killed_writer_that_waited_keeps_no_reader_out(
    url: str, locks: asyncdlock.LockClient, key: str
) -> None:
    """The readers before it go on holding for ever."""
    reader = await locks.acquire(key, shared=True)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.holding", url, key, "exclusive", "2.0"
    )
    try:
        async with asyncio.timeout(60.0):
            while (probe := await locks.try_acquire(key, shared=True)) is not None:
                assert await probe.release()
                await asyncio.sleep(0.02)
    finally:
        child.kill()
        await child.wait()
    late = await locks.acquire(key, shared=True, timeout=60.0)
    assert reader.held
    assert await late.release()
    assert await reader.release()
