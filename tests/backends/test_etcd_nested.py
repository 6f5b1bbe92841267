"""`a` and `a/b` are two locks whose keys share a prefix on the server: neither may be taken for the other."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from asyncdlock.backends.etcd import EtcdBackend, from_url
from harness.servers import EtcdCluster
from tests.backends.etcd_probe import Probe
from tests.backends.support import claim


@pytest.fixture
def probe(shared_etcd: EtcdCluster) -> Probe:
    return Probe(shared_etcd[0])


@pytest.fixture
async def backend(etcd_url: str) -> AsyncIterator[EtcdBackend]:
    backend = from_url(etcd_url)
    yield backend
    await backend.aclose()


async def test_a_try_beside_an_acquire_of_the_same_lock_never_makes_two_holders(
    backend: EtcdBackend, etcd_url: str, probe: Probe, key: str
) -> None:
    """Their requests travel together while a lock further down is held: who is not first holds nothing."""
    other = from_url(etcd_url)
    await other.acquire(claim(f"{key}/below"))
    for _ in range(10):
        attempt, spare, mine = claim(key), claim(f"{key}-spare"), claim(key)
        await backend.acquire(warm := claim(key))  # two leases, granted and fresh
        waiting = asyncio.create_task(backend.acquire(again := claim(key)))
        await probe.waits(key, 3)
        await backend.release(warm)
        await waiting
        await backend.release(again)

        async def acquire_twice() -> None:
            await backend.acquire(spare)  # noqa: B023
            await backend.acquire(mine)  # noqa: B023

        trying = asyncio.create_task(backend.try_acquire(attempt))
        acquiring = asyncio.create_task(acquire_twice())
        if await trying is not None:
            queue = [entry.value for entry in await probe.queue(key) if "below" not in entry.key]
            assert queue[0] == attempt.owner, "granted, but another one stands in front"
        await backend.release(attempt)
        await acquiring
        await backend.release(mine)
        await backend.release(spare)
    await other.aclose()


async def test_a_try_takes_a_bounded_number_of_requests_while_locks_below_come_and_go(
    backend: EtcdBackend, etcd_url: str, key: str
) -> None:
    other = from_url(etcd_url)
    stop = asyncio.Event()

    async def keep_busy(number: int) -> None:
        while not stop.is_set():
            mine = claim(f"{key}/{number}")
            await other.acquire(mine)
            await other.release(mine)

    busy = [asyncio.create_task(keep_busy(number)) for number in range(30)]
    won = 0
    try:
        async with asyncio.timeout(60):
            for _ in range(50):
                attempt = claim(key)
                before = backend.stats.transactions
                won += await backend.try_acquire(attempt) is not None
                assert backend.stats.transactions - before <= 4
                await backend.release(attempt)
    finally:
        stop.set()
        await asyncio.gather(*busy)
        await other.aclose()
    assert won == 50, "the lock itself was free"


async def test_a_try_finds_the_holder_among_many_locks_below(
    backend: EtcdBackend, etcd_url: str, probe: Probe, key: str
) -> None:
    """The holder is neither the newest nor the oldest key of the range, and no trace of the try stays."""
    other = from_url(etcd_url)
    await other.acquire(claim(f"{key}/older"))
    held = claim(key)
    await other.acquire(held)
    for number in range(3):
        await other.acquire(claim(f"{key}/newer-{number}"))
    before = await probe.queue(key)
    assert await backend.try_acquire(claim(key)) is None
    assert await probe.queue(key) == before
    await other.release(held)
    assert await backend.try_acquire(claim(key)) is not None
    await other.aclose()
