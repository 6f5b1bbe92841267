"""kill -9 of the store while many write: no mark that was answered for is forgotten.

PostgreSQL: test_postgres.py. A bucket, which takes half a minute to come back: tests/resource/test_s3.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit

import aetcd
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from asyncdlock.errors import StaleFence
from asyncdlock.fencing.etcd import FencedEtcd
from asyncdlock.fencing.redis import FencedRedis, UnknownOutcome
from harness import servers
from harness.servers.server import Server

KEY = "account:42"
WRITERS = 64

Write = Callable[[int, int], Awaitable[object]]
"""Of a value under a fence."""
Stored = Callable[[], Awaitable[int]]


@asynccontextmanager
async def on_redis() -> AsyncIterator[tuple[Server, Write, Stored]]:
    once = Retry(NoBackoff(), 0)
    async with servers.redis(persistent=True) as node, Redis.from_url(node.url, retry=once) as client:
        store = FencedRedis(client)

        async def stored() -> int:
            return int((await store.get(KEY)).body or 0)

        yield node, lambda value, fence: store.put(KEY, str(value), fence=fence), stored


@asynccontextmanager
async def on_etcd() -> AsyncIterator[tuple[Server, Write, Stored]]:
    async with servers.etcd() as cluster:
        where = urlsplit(cluster.url)
        async with aetcd.Client(host=where.hostname or "", port=where.port or 0, timeout=10) as client:
            store = FencedEtcd(client)
            put = client.transactions.put

            async def stored() -> int:
                found = await client.get(KEY.encode())
                return 0 if found is None else int(found.value)

            def write(value: int, fence: int) -> Awaitable[object]:
                return store.commit(KEY, [put(KEY.encode(), b"%d" % value)], fence=fence)

            yield cluster[0], write, stored


@pytest.mark.parametrize("started", [on_redis, on_etcd], ids=["redis", "etcd"])
async def test_no_answered_write_is_forgotten(
    started: Callable[[], AbstractAsyncContextManager[tuple[Server, Write, Stored]]],
) -> None:
    async with started() as (server, write, stored):
        answered: list[int] = []
        killed = asyncio.Event()

        async def writer(number: int) -> None:
            """Fences of its own, upwards; ends with the first that the dead server does not answer."""
            fence = number + 1
            while not killed.is_set():
                try:
                    await write(fence, fence)
                except (StaleFence, UnknownOutcome):
                    pass  # overtaken; the second: by so many that the store cannot tell
                except Exception:  # whatever a driver says when its server dies
                    if not killed.is_set():
                        raise
                    return
                else:
                    answered.append(fence)
                fence += WRITERS

        writers = [asyncio.create_task(writer(number)) for number in range(WRITERS)]
        async with asyncio.timeout(60):
            while len(answered) < 2 * WRITERS:
                await asyncio.sleep(0.01)
        killed.set()
        server.kill()
        await asyncio.gather(*writers)
        await server.restart()
        highest = await _patiently(stored)
        assert highest >= max(answered)
        for fence in (1, highest - 1):
            with pytest.raises(StaleFence):
                await write(-1, fence)  # another value: a write that was stored may be repeated
        await write(highest + 1, highest + 1)
        assert await stored() == highest + 1


async def _patiently(stored: Stored) -> int:
    """What is stored, as soon as the client has found the server again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await stored()
            except Exception:
                await asyncio.sleep(0.1)
