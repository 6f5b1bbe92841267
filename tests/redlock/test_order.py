"""What every clean-up rests on: requests of one client reach a node in the order in which they were made."""

import asyncio
from collections.abc import Awaitable

from redis.asyncio.connection import AbstractConnection

from asyncdlock.backends.redis.openers import opener_for
from asyncdlock.backends.redis.wire import Wire
from harness import servers


async def test_no_request_overtakes_one_that_waits_for_the_connection(
    redis_server: servers.RedisNode, key: str
) -> None:
    """A release that comes just as the connection opens must not reach the node before its acquire.

    Otherwise the node grants a lock that nobody will give back before its TTL.
    """
    opener = opener_for({"host": redis_server.host, "port": redis_server.port})
    later: list[Awaitable[object]] = []

    async def open_then_call() -> AbstractConnection:
        connection = await opener()
        # Runs when the connection is open, and before those who waited for it go on.
        asyncio.get_running_loop().call_soon(
            lambda: later.append(asyncio.ensure_future(wire.call("APPEND", key, "2")))
        )
        return connection

    wire = Wire(open_then_call, call_timeout=30.0)
    try:
        await wire.call("APPEND", key, "1")
        await asyncio.gather(*later)
        assert await wire.call("GET", key) == b"12"
    finally:
        await wire.aclose()
