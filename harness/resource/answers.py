"""Writes answers: small ones in one piece, large ones bit by bit, and none to clients that do not read.

aiohttp's own `Response` builds a dictionary of headers, and prepares, serialises and ends the answer in three
coroutines. Here an answer is bytes that are sent at once; what the server is given back says only whether the
connection goes on.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11

from harness.resource.requests import BadRequest

JSON = "application/json"

_PIECE = 1 << 16
_LAST = "\r\nConnection: close"
_CHUNKED = "Transfer-Encoding: chunked\r\n"
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would build one each time


def encode(document: object) -> bytes:
    """Compact JSON."""
    return _encode(document).encode()


class _Sent(web.StreamResponse):
    """Tells aiohttp's server that the answer is on its way, and whether another request may follow."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._goes_on = keep_alive

    @property
    def keep_alive(self) -> bool | None:
        return self._goes_on

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        pass


NEXT, LAST = _Sent(keep_alive=True), _Sent(keep_alive=False)


class Answers:
    """Sends answers, within bounds of time and memory.

    `timeout` is how long a client may leave a piece of an answer unread, and `max_buffered` how many bytes
    of large answers may wait for their readers altogether.
    """

    def __init__(self, *, timeout: float, max_buffered: int) -> None:
        self.closing = False
        """Every answer is from now on the last one on its connection."""
        self._timeout = timeout
        self._max_buffered = max_buffered
        self._buffered = 0
        self._second = 0
        self._date = ""

    async def accepted(self, request: web.BaseRequest, version: int) -> web.StreamResponse:
        """The answer to most requests, hence in one expression."""
        body = f'{{"version":{version}}}'
        ends = self._ends(request)
        _transport(request).write(
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f'ETag: "{version}"\r\nDate: {self._now()}{_LAST if ends else ""}\r\n\r\n{body}'.encode()
        )
        return LAST if ends else NEXT

    async def json(
        self,
        request: web.BaseRequest,
        document: object,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        close: bool = False,
    ) -> web.StreamResponse:
        return await self.send(request, encode(document), JSON, status=status, headers=headers, close=close)

    async def send(
        self,
        request: web.BaseRequest,
        body: bytes,
        content_type: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        close: bool = False,
    ) -> web.StreamResponse:
        """Send all of it.

        :raises BadRequest: with status 503, nothing sent: too much already waits to be read.
        :raises ConnectionError: the client is gone, or does not read.
        """
        if request.method == "HEAD":
            length, body = len(body), b""
        else:
            length = len(body)
        ends = close or self._ends(request)
        head = f"{self._head(status, content_type, headers, ends)}Content-Length: {length}\r\n\r\n"
        transport = _transport(request)
        if length <= _PIECE:
            transport.write(head.encode() + body)
            if transport.get_write_buffer_size():
                await self._drain(request)
        else:
            await self._send_large(request, head.encode(), body)
        return LAST if ends else NEXT

    async def stream(
        self,
        request: web.BaseRequest,
        pieces: AsyncIterator[bytes],
        content_type: str,
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        """Send pieces as they come, chunked.

        If they end in an error it is too late for a status: the connection is aborted, and without its last
        chunk nobody takes a part for the whole.

        :raises ConnectionError: the client is gone, or does not read.
        """
        chunked = request.version == HttpVersion11
        ends = self._ends(request)
        head = self._head(200, content_type, headers, ends)
        transport = _transport(request)
        transport.write(f"{head}{_CHUNKED if chunked else ''}\r\n".encode())
        try:
            async for piece in pieces:
                _transport(request).write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await self._drain(request)
        except BaseException:
            transport.abort()
            raise
        if chunked:
            transport.write(b"0\r\n\r\n")
        return LAST if ends else NEXT

    async def _send_large(self, request: web.BaseRequest, head: bytes, body: bytes) -> None:
        if self._buffered + len(body) > self._max_buffered:
            raise BadRequest("too many answers wait unread; try again", status=503)
        transport = _transport(request)
        self._buffered += len(body)
        try:
            transport.write(head)
            for start in range(0, len(body), _PIECE):
                _transport(request).write(body[start : start + _PIECE])
                await self._drain(request)
        finally:
            self._buffered -= len(body)

    async def _drain(self, request: web.BaseRequest) -> None:
        transport = _transport(request)
        try:
            async with asyncio.timeout(self._timeout):
                await request.writer.drain()
        except TimeoutError:
            transport.abort()
            raise ConnectionAbortedError("the client does not read") from None

    def _head(self, status: int, content_type: str, headers: Mapping[str, str] | None, ends: bool) -> str:
        more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) if headers else ""
        return (
            f"{_LINES[status]}Content-Type: {content_type}\r\n{more}"
            f"Date: {self._now()}{_LAST if ends else ''}\r\n"
        )

    def _ends(self, request: web.BaseRequest) -> bool:
        return self.closing or not request.keep_alive or request.version != HttpVersion11

    def _now(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True)
        return self._date


def refusal(document: Mapping[str, Any], *, status: int) -> bytes:
    """A whole answer for a connection that is closed behind it, before any request was read."""
    body = encode(document)
    head = f"{_LINES[status]}Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def _transport(request: web.BaseRequest) -> asyncio.Transport:
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client is gone")
    return transport
