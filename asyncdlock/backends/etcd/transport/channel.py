"""One member over our own HTTP/2, with as much of gRPC's channel interface as aetcd's stubs use."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

import grpc

from asyncdlock.backends.etcd.transport.calls import StreamMethod, UnaryMethod
from asyncdlock.backends.etcd.transport.conversation import Metadata, RpcFailed
from asyncdlock.backends.etcd.transport.frames import header_block
from asyncdlock.backends.etcd.transport.http2 import Http2Connection

_CONNECT_WITHIN = 5.0
# How long a member that could not be reached is not tried again.
_LEAVE_ALONE = 0.1


class Http2Channel:
    """One member: connects when it is needed, again when the connection is gone."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self._host, _, port = endpoint.rpartition(":")
        self._port = int(port)
        self._tls = tls
        self._connection: Http2Connection | None = None
        self._connections: set[Http2Connection] = set()
        self._connecting: asyncio.Task[Http2Connection] | None = None
        self._failed: tuple[float, RpcFailed] | None = None
        self._blocks: dict[tuple[str, Metadata], bytes] = {}
        self._closed = False

    def unary_unary(
        self, path: str, request_serializer: Callable[[Any], bytes], response_deserializer: Any, **_: object
    ) -> UnaryMethod:
        """As the stubs ask for it."""
        return UnaryMethod(self, path, request_serializer, response_deserializer)

    def stream_stream(
        self, path: str, request_serializer: Callable[[Any], bytes], response_deserializer: Any, **_: object
    ) -> StreamMethod:
        """As the stubs ask for it."""
        return StreamMethod(self, path, request_serializer, response_deserializer)

    def block(self, path: str, metadata: Metadata) -> bytes:
        """The headers of a request."""
        block = self._blocks.get((path, metadata))
        if block is None:
            if len(self._blocks) > 100:  # of tokens that have long expired
                self._blocks.clear()
            told = [
                (":method", "POST"),
                (":scheme", "http" if self._tls is None else "https"),
                (":path", path),
                (":authority", self.endpoint),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "asyncdlock"),
                *metadata,
            ]
            block = header_block([(name.encode(), value.encode()) for name, value in told])
            self._blocks[path, metadata] = block
        return block

    @property
    def ready(self) -> Http2Connection | None:
        """The connection, if there is one that takes requests."""
        connection = self._connection
        return None if connection is None or connection.leaving else connection

    async def connected(self, within: float) -> Http2Connection:
        """A connection that takes requests.

        :raises RpcFailed: there is none; nothing was sent.
        """
        if self._closed:
            raise RpcFailed(grpc.StatusCode.CANCELLED, "the channel is closed", unsent=True)
        if (connection := self.ready) is not None:
            return connection
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise self._failed[1].again()
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._tried)
        connecting = self._connecting
        await asyncio.wait({connecting}, timeout=within)
        if not connecting.done():
            said = f"failed to connect to {self.endpoint} within {within:g} s"
            raise RpcFailed(grpc.StatusCode.DEADLINE_EXCEEDED, said, unsent=True)
        if connecting.cancelled():
            raise RpcFailed(grpc.StatusCode.CANCELLED, "the channel is closed", unsent=True)
        error = connecting.exception()
        if isinstance(error, RpcFailed):
            raise error.again()
        return connecting.result()

    async def _connect(self) -> Http2Connection:
        try:
            async with asyncio.timeout(_CONNECT_WITHIN):
                transport, made = await asyncio.get_running_loop().create_connection(
                    lambda: Http2Connection(self._gone),
                    self._host.strip("[]"),
                    self._port,
                    ssl=self._tls,
                )
        except (OSError, UnicodeError) as error:  # time-outs and failed TLS handshakes are OSErrors
            said = f"failed to connect to {self.endpoint}: {error or 'no answer'}"
            raise RpcFailed(grpc.StatusCode.UNAVAILABLE, said, unsent=True) from None
        if self._tls is not None and transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            made.close("no HTTP/2")
            said = f"failed to connect to {self.endpoint}: it does not speak HTTP/2 over TLS"
            raise RpcFailed(grpc.StatusCode.UNAVAILABLE, said, unsent=True)
        if self._closed:
            made.close("the channel is closed")
        self._connection = made
        self._connections.add(made)
        return made

    def _tried(self, task: "asyncio.Task[Http2Connection]") -> None:
        self._connecting = None
        error = None if task.cancelled() else task.exception()
        self._failed = (time.monotonic() + _LEAVE_ALONE, error) if isinstance(error, RpcFailed) else None

    def _gone(self, connection: Http2Connection) -> None:
        self._connections.discard(connection)
        if self._connection is connection:
            self._connection = None

    async def close(self) -> None:
        """Close every connection; calls under way fail."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        for connection in tuple(self._connections):
            connection.close("the channel is closed")
