"""A handle that is dropped without a release: its holder is told, its lease is left to run out."""

import asyncio
import gc
import warnings

import pytest

import asyncdlock
from asyncdlock.client import LockClient
from tests.contract.fixtures import until

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")


async def drop(locks: LockClient, key: str, *, ttl: float) -> None:
    await locks.acquire(key, ttl=ttl)
    gc.collect()


async def test_it_warns_with_the_key_and_is_renewed_no_longer(redis_url: str, key: str) -> None:
    async with asyncdlock.connect(redis_url) as locks, asyncdlock.connect(redis_url) as other:
        with pytest.warns(ResourceWarning, match=key) as caught:
            await drop(locks, key, ttl=0.5)
        (said,) = [str(warning.message) for warning in caught]
        debug = asyncio.get_running_loop().get_debug()
        assert (f"{__file__}:" in said) is debug, "where it was acquired is noted in debug mode"
        lost = locks._metrics.lost
        async with other.hold(key, timeout=60.0):
            pass
        await until(lambda: locks._metrics.lost == lost + 1)
        assert locks._core.watchdog.watched() == []


async def test_closing_the_client_gives_it_back(redis_url: str, key: str) -> None:
    async with asyncdlock.connect(redis_url) as other:
        async with asyncdlock.connect(redis_url) as locks:
            with pytest.warns(ResourceWarning, match=key):
                await drop(locks, key, ttl=60.0)
        assert await (await other.acquire(key, timeout=30.0)).release()


async def test_who_lets_go_in_order_hears_nothing(key: str) -> None:
    async with asyncdlock.connect("memory://dropped") as locks:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await (await locks.acquire(key)).release()
            async with locks.hold(key):
                gc.collect()
            async with asyncdlock.ReentrantLock(locks, key):
                gc.collect()
            # A lease that was not to be renewed is meant to run out by itself.
            await locks.acquire(f"{key}-2", renew=False)
            waiting = asyncio.create_task((await locks.acquire(f"{key}-3")).wait_lost())
            await asyncio.sleep(0)
            gc.collect()
    assert await waiting is True, "whoever waits for the loss keeps the handle"


async def test_a_handle_outlives_its_client_in_silence(key: str) -> None:
    async def taken() -> asyncdlock.Handle:
        async with LockClient(asyncdlock.connect("memory://dropped")._backend) as locks:
            return await locks.acquire(key)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handle = await taken()
        assert not handle.held
        del handle
        gc.collect()
