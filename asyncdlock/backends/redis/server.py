"""One Redis primary, alone or found by Sentinel, behind one wire; runs our scripts on it."""

from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio import ConnectionPool, Sentinel
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from asyncdlock.backends.redis.replies import ReadOnly, ScriptMissing
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redis.wire import Opener, Wire
from asyncdlock.errors import BackendUnavailable
from asyncdlock.types import Claim

_CHANNEL = "asyncdlock:"


class Server:
    """Runs scripts on one primary, and brings messages from it.

    Every script of ours may be repeated by its owner with the same effect, so a reply that was
    lost with its connection costs one repetition, not an error:

    | answer                                | what follows                                   |
    |---------------------------------------|------------------------------------------------|
    | NOSCRIPT                              | sent again with its text, once                 |
    | connection lost before the reply      | repeated once on a new connection              |
    | READONLY                              | connection dropped, the next one looks anew    |
    | LOADING, BUSY, …                      | BackendUnavailable, definite                   |
    | any other error reply                 | BackendError, definite                         |
    """

    publish_verb = "PUBLISH"
    count_verb = "NUMSUB"

    def __init__(self, opener: Opener, *, call_timeout: float = 5.0) -> None:
        self._wire = Wire(opener, on_open=self._subscribe, call_timeout=call_timeout)
        self._session: str | None = None

    @property
    def commands(self) -> int:
        return self._wire.commands

    async def run(self, script: Script, key: str, *arguments: str | int) -> Any:
        """Run `script`; `arguments` are the number of keys, the keys and the ARGV.

        `key` is the lock that the script is about: it decides nothing here, but in a cluster the node.

        :raises BackendError: see the table above.
        """
        try:
            return await self._wire.call("EVALSHA", script.sha, *arguments)
        except ScriptMissing:
            return await self._wire.call("EVAL", script.source, *arguments)
        except ReadOnly:
            self._wire.drop("the server became a replica")
            raise
        except BackendUnavailable as error:
            if error.definite:
                raise
            return await self._repeat(script, arguments, error)

    async def _repeat(
        self, script: Script, arguments: tuple[str | int, ...], first: BackendUnavailable
    ) -> Any:
        try:
            return await self._wire.call("EVAL", script.source, *arguments)
        except BackendUnavailable as error:
            # Also when this try certainly failed, the first one may have been carried out.
            raise BackendUnavailable(str(error), definite=False) from first

    def batches(self, keys: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        return [range(start, min(start + most, len(keys))) for start in range(0, len(keys), most)]

    def on_message(self, told: Callable[[str], None], lost: Callable[[], None]) -> None:
        def pushed(message: list[Any]) -> None:
            if message[0] == b"message":
                told(message[2].decode())

        self._wire.on_push = pushed
        self._wire.on_lost = lost

    def channel_prefix(self, key: str) -> str:
        return _CHANNEL

    async def listen(self, claim: Claim) -> None:
        # One channel for all keys, subscribed first thing on every connection.
        if self._session is None:
            self._session = claim.session

    def stop_listening(self, claim: Claim) -> None:
        """The one channel stays."""

    async def _subscribe(self, wire: Wire) -> None:
        if self._session is not None:
            await wire.call("SUBSCRIBE", _CHANNEL + self._session)

    async def aclose(self) -> None:
        await self._wire.aclose()


def opener_for(url: str, **options: Any) -> Opener:
    """Opens connections to the server at `url` (`redis://`, `rediss://` or `unix://`)."""
    pool = ConnectionPool.from_url(url, **_connection_options(options))
    pool.make_connection()  # does no I/O, but refuses options that it does not know

    async def open_connection() -> AbstractConnection:
        connection: AbstractConnection = pool.make_connection()
        await connection.connect()
        return connection

    return open_connection


def sentinel_opener(
    sentinels: list[tuple[str, int]], service: str, *, sentinel_options: dict[str, Any], **options: Any
) -> Opener:
    """Opens connections to whatever server the sentinels call the primary of `service` at that time."""
    finder = Sentinel(sentinels, sentinel_kwargs=_connection_options(sentinel_options))
    pool = finder.master_for(service, **_connection_options(options)).connection_pool

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
