"""gRPC's calls as HTTP/2 streams: one answer to one request, or a conversation."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from asyncdlock.backends.etcd.transport.conversation import Metadata, Received, RpcFailed
from asyncdlock.backends.etcd.transport.frames import Headers
from asyncdlock.backends.etcd.transport.outcome import of_http2, of_trailers
from asyncdlock.backends.etcd.transport.sender import Http2Error, Http2Sender, Http2Stream

_GRACE = 0.05
_PATIENCE = 5.0  # of a conversation, with a connection that is not there


class Connections(Protocol):
    """Where calls get their connection."""

    @property
    def ready(self) -> Http2Sender | None:
        """The connection, if there is one that takes requests."""

    async def connected(self, within: float) -> Http2Sender:
        """A connection that takes requests.

        :raises RpcFailed: there is none; nothing was sent.
        """
        ...

    def block(self, path: str, metadata: Metadata) -> bytes:
        """The headers of a request."""
        ...


class _Exchange(Http2Stream):
    """One call: what HTTP says of it, read as gRPC."""

    __slots__ = ("_buffer", "_trailers", "over")

    def __init__(self) -> None:
        super().__init__()
        self.over: bool = False
        """Whoever called knows how it ended, or does not want to."""
        self._trailers: Headers = ()
        self._buffer = b""

    def headers(self, headers: Headers) -> None:
        self._trailers = headers

    def data(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data

    def closed(self, error: Http2Error | None) -> None:
        if self.over:
            return
        failure = of_http2(error) if error is not None else of_trailers(self._trailers)
        if failure is not None:
            self.fail(failure)
        else:
            self.finished()

    def fail(self, failure: RpcFailed) -> None:
        """Tell the caller that it failed."""
        raise NotImplementedError

    def finished(self) -> None:
        """The server has answered all of it, and well."""
        raise NotImplementedError

    def next_message(self, read: Callable[[bytes], Any]) -> Any | None:
        """Take one whole message out of what has come.

        :raises RpcFailed: it is none.
        """
        buffer = self._buffer
        if len(buffer) < 5:
            return None
        end = 5 + int.from_bytes(buffer[1:5], "big")
        if len(buffer) < end:
            return None
        self._buffer = buffer[end:]
        try:
            if buffer[0]:
                raise ValueError("it is compressed")
            return read(buffer[5:end])
        except (ValueError, DecodeError) as broken:
            said = f"an answer that cannot be read: {broken}"
            raise RpcFailed(grpc.StatusCode.INTERNAL, said) from None


Told = Callable[[Any, RpcFailed | None], None]
"""Takes the answer, or why there is none."""


class _UnaryExchange(_Exchange):
    __slots__ = ("_connection", "_read", "_timer", "_told")

    def __init__(
        self, read: Callable[[bytes], Any], connection: Http2Sender, timeout: float, told: Told
    ) -> None:
        super().__init__()
        self._read = read
        self._connection = connection
        self._told = told
        self._timer = asyncio.get_running_loop().call_later(timeout, self._due)

    def finished(self) -> None:
        try:
            message = self.next_message(self._read)
        except RpcFailed as failure:
            self.fail(failure)
            return
        if message is None:
            self.fail(RpcFailed(grpc.StatusCode.INTERNAL, "an answer that is not complete"))
            return
        self._stop()
        self._told(message, None)

    def fail(self, failure: RpcFailed) -> None:
        self._stop()
        self._told(None, failure)

    def abandon(self) -> None:
        """Nobody wants to know any more."""
        self._stop()
        self._connection.abandon(self)

    def _stop(self) -> None:
        self.over = True
        self._timer.cancel()

    def _due(self) -> None:
        # The loop may have slept itself: what has arrived meanwhile is read first.
        self._timer = asyncio.get_running_loop().call_later(_GRACE, self._expire)

    def _expire(self) -> None:
        late = RpcFailed(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time", unsent=not self.said)
        self.abandon()
        self._told(None, late)


class UnaryMethod:
    """A method with one request and one answer."""

    def __init__(
        self, channel: Connections, path: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
    ) -> None:
        self._channel = channel
        self._path = path
        self._write = write
        self._read = read

    async def __call__(self, request: Any, *, timeout: float, metadata: Metadata) -> Any:
        """The answer to `request`.

        :raises RpcFailed: it failed; `unsent` tells whether the server may have acted on it.
        """
        connection = self._channel.ready
        if connection is None:
            before = time.monotonic()
            connection = await self._channel.connected(timeout)
            timeout = max(_GRACE, timeout - (time.monotonic() - before))
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def told(message: Any, failure: RpcFailed | None) -> None:
            if done.done():
                return
            if failure is None:
                done.set_result(message)
            else:
                done.set_exception(failure)

        exchange = self._open(connection, request, timeout, metadata, told)
        try:
            return await done
        except asyncio.CancelledError:
            exchange.abandon()
            raise

    def begin(self, request: Any, *, timeout: float, metadata: Metadata, told: Told) -> bool:
        """Send `request` now and have `told` called when it is answered; `False`: nothing is connected."""
        connection = self._channel.ready
        if connection is None:
            return False
        self._open(connection, request, timeout, metadata, told)
        return True

    def _open(
        self, connection: Http2Sender, request: Any, timeout: float, metadata: Metadata, told: Told
    ) -> _UnaryExchange:
        exchange = _UnaryExchange(self._read, connection, timeout, told)
        exchange.pending.append((prefixed(self._write(request)), True))
        connection.open(exchange, self._channel.block(self._path, metadata))
        return exchange


class StreamMethod:
    """A method with many requests and many answers."""

    def __init__(
        self, channel: Connections, path: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
    ) -> None:
        self.channel = channel
        self.path = path
        self.write = write
        self.read = read

    def __call__(self, metadata: Metadata, received: Received) -> "Http2Conversation":
        """Open a stream."""
        return Http2Conversation(self, metadata, received)


class Http2Conversation(_Exchange):
    """A call of a `StreamMethod`: what arrives is told at once, without a task in between."""

    over: bool
    __slots__ = ("_connection", "_done", "_metadata", "_method", "_received")

    def __init__(self, method: StreamMethod, metadata: Metadata, received: Received) -> None:
        super().__init__()
        self._method = method
        self._metadata = metadata
        self._received = received
        self._connection: Http2Sender | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def say(self, message: Any) -> None:
        """As `Conversation` has it."""
        if self.over:
            return
        data = prefixed(self._method.write(message))
        if self._connection is None:
            self.pending.append((data, False))
        else:
            self._connection.send(self, data)

    async def ended(self) -> None:
        """As `Conversation` has it."""
        try:
            connection = await self._method.channel.connected(_PATIENCE)
            if not self.over:
                self._connection = connection
                connection.open(self, self._method.channel.block(self._method.path, self._metadata))
            await self._done
        finally:
            self.cancel()

    def cancel(self) -> None:
        """As `Conversation` has it."""
        self.finished()
        if self._connection is not None:
            self._connection.abandon(self)
            self._connection = None

    def data(self, data: bytes) -> None:
        super().data(data)
        try:
            while not self.over and (message := self.next_message(self._method.read)) is not None:
                self._received(message)
        except RpcFailed as failure:
            self.fail(failure)

    def fail(self, failure: RpcFailed) -> None:
        if not self.over:
            self.over = True
            self._done.set_exception(failure)
            self._done.exception()  # whoever was cancelled never looks

    def finished(self) -> None:
        if not self.over:
            self.over = True
            if not self._done.done():
                self._done.set_result(None)


def prefixed(message: bytes) -> bytes:
    """A message as gRPC writes it: not compressed, and its length."""
    return b"\0" + len(message).to_bytes(4, "big") + message
