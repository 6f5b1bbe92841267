"""A server that speaks HTTP/2 frame by frame, so that it can do what a healthy one does rarely."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from hpack import Decoder, Encoder

from asyncdlock.backends.etcd.transport.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)

_OK = [(":status", "200"), ("content-type", "application/grpc")]
_WELL = [("grpc-status", "0"), ("grpc-message", "")]


class Frame(NamedTuple):
    """One that the client sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class Http2Server:
    """One connection at a time; the test reads frames and says what is answered."""

    def __init__(self) -> None:
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self.headers: dict[str, str] = {}
        """Of the last request."""
        self._accepted: asyncio.Queue[None] = asyncio.Queue()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many there have been."""
        return len(self._writers)

    def cut(self) -> None:
        """Drop every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._writers.append(writer)
        # Tables of headers belong to a connection.
        self._decoder, self._encoder = Decoder(), Encoder()
        assert await reader.readexactly(len(PREFACE)) == PREFACE
        self._accepted.put_nowait(None)

    async def accepted(self) -> None:
        """Wait for the next connection."""
        await self._accepted.get()

    async def next(self, kind: int) -> Frame:
        """The next frame of this kind; what comes before it is passed over."""
        while True:
            head = await self.reader.readexactly(9)
            high, low, found, flags, stream = struct.unpack(">BHBBL", head)
            one = Frame(found, flags, stream, await self.reader.readexactly(high << 16 | low))
            if one.kind == HEADERS:
                told = self._decoder.decode(one.payload, raw=True)
                self.headers = {bytes(name).decode(): bytes(value).decode() for name, value in told}
            if one.kind == kind:
                return one

    async def request(self) -> Frame:
        """The next DATA frame that ends a request."""
        while not (one := await self.next(DATA)).flags & END_STREAM:
            pass
        return one

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.writer.write(frame(kind, flags, stream, payload))

    def settings(self, **values: int) -> None:
        names = {"most_streams": 3, "window": 4, "frame": 5}
        told = b"".join(struct.pack(">HL", names[name], value) for name, value in values.items())
        self.send(SETTINGS, 0, 0, told)

    def more_window(self, stream: int, size: int) -> None:
        self.send(WINDOW_UPDATE, 0, stream, struct.pack(">L", size))

    def answer(self, stream: int, message: bytes = b"", *, pieces: int = 0) -> None:
        """A whole answer; with `pieces`, its headers and its data are cut into so many bytes each."""
        self.open_answer(stream, pieces=pieces)
        self.say(stream, message, pieces=pieces)
        self.trailers(stream, _WELL)

    def open_answer(self, stream: int, *, pieces: int = 0) -> None:
        block = self._encoder.encode(_OK)
        first, rest = (block[:pieces], block[pieces:]) if pieces else (block, b"")
        self.send(HEADERS, 0 if rest else END_HEADERS, stream, first)
        while rest:
            first, rest = rest[:pieces], rest[pieces:]
            self.send(CONTINUATION, 0 if rest else END_HEADERS, stream, first)

    def say(self, stream: int, message: bytes, *, pieces: int = 0) -> None:
        data = b"\0" + struct.pack(">L", len(message)) + message
        for at in range(0, len(data), pieces or 16_384):
            self.send(DATA, 0, stream, data[at : at + (pieces or 16_384)])

    def trailers(self, stream: int, told: list[tuple[str, str]]) -> None:
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, self._encoder.encode(told))

    def refuse(self, stream: int, status: int, message: str) -> None:
        """Trailers alone, as gRPC refuses."""
        self.trailers(stream, [*_OK, ("grpc-status", str(status)), ("grpc-message", message)])

    async def ponged(self, payload: bytes) -> None:
        """Wait for the answer to a ping."""
        while True:
            one = await self.next(PING)
            if one.flags & ACK and one.payload == payload:
                return


@asynccontextmanager
async def http2_server() -> AsyncIterator[Http2Server]:
    server = Http2Server()
    listening = await asyncio.start_server(server._accept, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        server.cut()
