"""redlock://: a node that is down is left alone for a while, and taken back when it answers again."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import asyncdlock
from harness import servers
from tests.redlock.conftest import eventually, owners, warm

LONG = 60.0


class Dead:
    """A port that closes every connection, and counts them."""

    address = ""
    dials = 0

    async def accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        writer.close()


@asynccontextmanager
async def dead_node() -> AsyncIterator[Dead]:
    dead = Dead()
    server = await asyncio.start_server(dead.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    dead.address = f"{host}:{port}"
    try:
        yield dead
    finally:
        server.close()


async def test_a_dead_node_is_not_dialled_for_every_request(key: str) -> None:
    async with servers.redis_nodes(4) as nodes, dead_node() as dead:
        url = f"redlock://{nodes.addresses},{dead.address}"
        async with asyncdlock.connect(url) as locks:
            began = time.monotonic()
            for _ in range(200):
                handle = await locks.acquire(key, ttl=LONG)
                assert await handle.release()
            lasted = time.monotonic() - began
        # The pauses between two dials grow to a second, jittered down to half of it.
        assert dead.dials <= 10 + 2 * lasted


async def test_a_node_that_comes_back_votes_again(key: str) -> None:
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        nodes[1].kill()
        for _ in range(5):
            handle = await locks.acquire(key, ttl=LONG)
            assert await handle.release()
        await nodes[1].start()

        async def held_everywhere() -> bool:
            handle = await locks.acquire(key, ttl=LONG)
            held = await owners(nodes, key)
            await handle.release()
            return held == [handle.owner] * 3

        await eventually(held_everywhere)


async def test_a_majority_that_was_down_is_dialled_whenever_it_is_needed(key: str) -> None:
    """No pause between dials may keep a lock from somebody when all servers are back."""
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url, local_queue=False) as locks:
        await warm(locks, nodes)
        for node in nodes:
            node.kill()
        for _ in range(20):
            with pytest.raises(asyncdlock.QuorumError) as caught:
                await locks.try_acquire(key, ttl=LONG)
            assert caught.value.causes is not None
            assert len(caught.value.causes.exceptions) == 3
        for node in nodes:
            await node.start()
        handle = await locks.try_acquire(key, ttl=LONG)
        assert handle is not None
        assert await handle.release()


async def test_locks_are_listed_by_a_minority_never_as_if_that_were_all(key: str) -> None:
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        held = await locks.acquire(key, ttl=LONG)
        nodes[0].kill()
        assert key in [name async for name in locks.keys()]  # noqa: SIM118 - a client is no dictionary
        nodes[1].kill()
        with pytest.raises(asyncdlock.QuorumError, match="there may be more"):
            [name async for name in locks.keys()]  # noqa: SIM118
        await nodes[0].start()
        await nodes[1].start()
        with contextlib.suppress(asyncdlock.BackendError):  # two nodes have forgotten it
            await held.release()
