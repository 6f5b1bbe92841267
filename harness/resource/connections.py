"""aiohttp's low-level server with bounds: limited connections, no request that breaks it, a gentle end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError, RawRequestMessage
from aiohttp.streams import StreamReader
from yarl import URL

from harness.resource.answers import LAST, refusal

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_ROOT = URL("/")
_REFUSED_LINGER = 1.0
_MOST_LINGERING = 64
_DRAIN_EVERY = 0.005

logger = logging.getLogger(__package__)


class Connection(web.RequestHandler):
    """One connection; what goes wrong below the service is answered in JSON as well."""

    __slots__ = ("_paused_reading", "busy")

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self.busy = False
        """A request has arrived and is not answered yet."""
        self._paused_reading = False

    def pause_reading(self) -> None:
        self._paused_reading = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # Every body asks for it twice, also a small one that never paused anything, and it costs a call
        # of the parser and two of the transport: a fifteenth of a request's CPU.
        if self._paused_reading:
            self._paused_reading = not resume_parser
            super().resume_reading(resume_parser)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError):
            # What a client sent that is no HTTP is its own affair; anything else is a fault of ours.
            logger.error("a request failed", exc_info=exc)
            message = "the resource failed; its log says why"
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        reason = " ".join((message or "bad request").split())
        transport.write(refusal({"error": reason[:200]}, status=status))
        return LAST


class BoundedServer(web.Server):
    """Serves at most `max_connections` at a time, and tells the others."""

    def __init__(self, handler: Handler, *, max_connections: int, **options: Any) -> None:
        super().__init__(self._handle, request_factory=self._request, **options)
        self._handler = handler
        self._options = options
        self._max_connections = max_connections
        self._open = 0
        self._lingering = 0

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open += 1
        if self._open - self._lingering <= self._max_connections:
            return
        if self._lingering >= _MOST_LINGERING:
            transport.abort()
            return
        # Closed at once, the connection would be reset by the request that is on its way, answer and all.
        handler.close()
        transport.write(refusal({"error": "too many connections; try again"}, status=503))
        transport.write_eof()
        self._lingering += 1
        asyncio.get_running_loop().call_later(_REFUSED_LINGER, self._end_lingering, transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._open -= 1
        super().connection_lost(handler, exc)

    async def drain(self, within: float) -> None:
        """Close idle connections, and the others once they have their answer or the time is over.

        aiohttp's own way out stops reading, so that a body which is on its way would never arrive.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while True:
            await asyncio.sleep(_DRAIN_EVERY)  # what has arrived by now becomes busy
            busy = False
            for connection in self.connections:
                if isinstance(connection, Connection) and connection.busy:
                    busy = True
                else:
                    connection.force_close()
            if not busy or loop.time() > deadline:
                return

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.busy = True
        try:
            return await self._handler(request)
        finally:
            connection.busy = False

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        if message.url.absolute:
            # aiohttp would decode the host, and a bad one raises where nothing closes the connection.
            message = message._replace(url=_ROOT)
        return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())

    def _end_lingering(self, transport: asyncio.Transport) -> None:
        self._lingering -= 1
        transport.abort()
