"""How redis-py opens a connection for a wire: to a given server, or to the one that Sentinel names."""

from typing import Any

from redis.asyncio import ConnectionPool, Sentinel
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from asyncdlock.backends.redis.wire import Opener


def opener_for(options: dict[str, Any]) -> Opener:
    """Opens connections to one server; `options` are those of redis-py's `ConnectionPool`.

    :raises TypeError: redis-py does not know one of them.
    """
    pool = ConnectionPool(**_connection_options(options))
    pool.make_connection()  # does no I/O, but refuses options that it does not know

    async def open_connection() -> AbstractConnection:
        connection: AbstractConnection = pool.make_connection()
        await connection.connect()
        return connection

    return open_connection


def sentinel_opener(
    sentinels: list[tuple[str, int]], service: str, *, sentinel_options: dict[str, Any], **options: Any
) -> Opener:
    """Opens connections to whatever server the sentinels call the primary of `service` at that time.

    :raises TypeError: redis-py does not know one of the options.
    """
    # RESP2: redis-py 5.1 cannot read what sentinels say in RESP3.
    asking = _connection_options({"protocol": 2, **sentinel_options})
    finder = Sentinel(sentinels, sentinel_kwargs=asking)
    pool = finder.master_for(service, **_connection_options(options)).connection_pool
    pool.make_connection()  # as above

    async def open_connection() -> AbstractConnection:
        connection: AbstractConnection = pool.make_connection()
        try:
            await connection.connect()
        finally:
            for sentinel in finder.sentinels:
                await sentinel.aclose()
        return connection

    return open_connection


def _connection_options(options: dict[str, Any]) -> dict[str, Any]:
    """Defaults for a wire: RESP3 for pushed messages; one try, because the wire has its own patience."""
    return {
        "protocol": 3,
        "socket_connect_timeout": 2.0,
        "socket_timeout": 5.0,
        "retry": Retry(NoBackoff(), 0),
        **options,
    }
