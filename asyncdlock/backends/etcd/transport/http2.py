"""The client's side of one HTTP/2 connection, as much of RFC 9113 as gRPC needs. No requests, no etcd.

Nothing is pushed and no priorities are set. Headers go out as literals without a table, those that come in
are decoded by `hpack`. What is sent, and when, is in `sender`.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from hpack import Decoder, HPACKError

from asyncdlock import _process
from asyncdlock.backends.etcd.transport.frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_SIZE,
    GOAWAY,
    HEAD,
    HEADERS,
    INITIAL_WINDOW,
    MAX_STREAMS,
    NUMBER,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    Headers,
    frame,
)
from asyncdlock.backends.etcd.transport.sender import (
    DEFAULT_WINDOW,
    LARGEST_FRAME,
    LAST_ID,
    Http2Error,
    Http2Sender,
    Http2Stream,
)

_LARGEST_HEADERS = 65_536
_WINDOW = 4 << 20  # what a stream may send us before we have read it
_LARGEST_WINDOW = (1 << 31) - 1

# As gRPC's library is told to do it: etcd takes a ping every 5 s.
_PING_AFTER = 10.0
_PONG_WITHIN = 3.0
_GRACE = 0.05
# etcd's server pings whenever it receives something, to measure the line. To answer each ping by itself
# would cost both sides a wake-up for every request.
_PONG_AFTER = 0.01


class Http2Connection(Http2Sender, asyncio.Protocol):
    """Any number of streams to one server."""

    transport: asyncio.Transport | None
    error: Http2Error | None
    leaving: bool
    streams: dict[int, Http2Stream]
    waiting: dict[Http2Stream, bytes]
    window: int

    def __init__(self, on_closed: Callable[["Http2Connection"], None]) -> None:
        super().__init__()
        self._on_closed = on_closed
        self._decoder = Decoder(_LARGEST_HEADERS)
        self._decoded: dict[bytes, Headers] = {}
        self._rest = b""
        self._fragments: tuple[int, int, bytearray] | None = None
        self._unacknowledged = 0
        self._heard = False
        self._timer: asyncio.TimerHandle | None = None
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            DATA: self._on_data,
            HEADERS: self._on_headers,
            RST_STREAM: self._on_reset,
            SETTINGS: self._on_settings,
            PUSH_PROMISE: self._on_push,
            PING: self._on_ping,
            GOAWAY: self._on_goaway,
            WINDOW_UPDATE: self._on_window,
            CONTINUATION: self._on_continuation,
        }

    def close(self, reason: str) -> None:
        self._end(Http2Error(reason))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        _process.cut_in_child(self)
        told = SETTING.pack(ENABLE_PUSH, 0) + SETTING.pack(INITIAL_WINDOW, _WINDOW)
        more = NUMBER.pack(_WINDOW - DEFAULT_WINDOW)
        self.write(PREFACE + frame(SETTINGS, 0, 0, told) + frame(WINDOW_UPDATE, 0, 0, more))
        self._timer = asyncio.get_running_loop().call_later(_PING_AFTER, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Http2Error(f"connection lost: {exc}" if exc else "connection closed by the server"))

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            while end - at >= 9 and self.error is None:
                high, low, kind, flags, number = HEAD.unpack_from(data, at)
                size = high << 16 | low
                if size > LARGEST_FRAME:
                    raise Http2Error("a frame larger than agreed")
                if end - at < 9 + size:
                    break
                if self._fragments is not None and kind != CONTINUATION:
                    raise Http2Error("a header block was interrupted")
                handler = self._handlers.get(kind)
                if handler is not None:
                    handler(flags, number & LAST_ID, data[at + 9 : at + 9 + size])
                at += 9 + size
        except (Http2Error, HPACKError, struct.error, IndexError) as error:
            self._end(Http2Error(f"the server broke the protocol: {error}"))
            return
        self._rest = data[at:] if at < end else b""
        self.flush()

    def _end(self, error: Http2Error) -> None:
        if self.error is not None:
            return
        self.error = error
        self.leaving = True
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.abort()
        self._on_closed(self)
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            # The server acts on a request when it has all of it.
            stream.closed(Http2Error(str(error), unsent=not stream.said))
        self._fail_waiting(error)

    def _fail_waiting(self, error: Http2Error) -> None:
        waiting, self.waiting = self.waiting, {}
        for stream in waiting:
            stream.closed(Http2Error(str(error), unsent=True))

    def _look(self) -> None:
        """A server that died without a word is noticed by a ping, while somebody expects something."""
        loop = asyncio.get_running_loop()
        if self.streams and not self._heard:
            self.write(frame(PING, 0, 0, bytes(8)))
            self._timer = loop.call_later(_PONG_WITHIN, self._check_heard, _GRACE)
        else:
            self._heard = False
            self._timer = loop.call_later(_PING_AFTER, self._look)

    def _check_heard(self, grace: float) -> None:
        if self._heard:
            self._look()
        elif grace:
            # The loop may have slept itself: what has arrived meanwhile is read first.
            self._timer = asyncio.get_running_loop().call_later(grace, self._check_heard, 0.0)
        else:
            self._end(Http2Error("no answer to a ping"))

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._unacknowledged += size
        if self._unacknowledged > _WINDOW // 2:
            self.later.append(frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(self._unacknowledged)))
            self._unacknowledged = 0
        stream = self.streams.get(number)
        if stream is None:
            return
        if flags & PADDED:
            payload = payload[1 : size - payload[0]]
        stream.data(payload)
        if flags & END_STREAM:
            self._finish(stream)
            return
        stream.unacknowledged += size
        if stream.unacknowledged > _WINDOW // 2:
            self.later.append(frame(WINDOW_UPDATE, 0, number, NUMBER.pack(stream.unacknowledged)))
            stream.unacknowledged = 0

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        if flags & PRIORITY:
            payload = payload[5:]
        if flags & END_HEADERS:
            self._take_headers(flags, number, payload)
        else:
            self._fragments = flags, number, bytearray(payload)

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._fragments is None or self._fragments[1] != number:
            raise Http2Error("a continuation of nothing")
        self._fragments[2].extend(payload)
        if len(self._fragments[2]) > _LARGEST_HEADERS:
            raise Http2Error("headers larger than anybody needs")
        if flags & END_HEADERS:
            (flags, _, block), self._fragments = self._fragments, None
            self._take_headers(flags, number, bytes(block))

    def _take_headers(self, flags: int, number: int, block: bytes) -> None:
        headers = self._decode(block)
        stream = self.streams.get(number)
        if stream is not None:
            stream.headers(headers)
            if flags & END_STREAM:
                self._finish(stream)

    def _decode(self, block: bytes) -> Headers:
        """A block of nothing but indices changes no table, and means the same until another one does."""
        known = self._decoded.get(block)
        if known is not None:
            return known
        headers = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        if block and min(block) > 0x80 and max(block) < 0xFF:
            self._decoded[block] = headers
        else:
            self._decoded.clear()
        return headers

    def _finish(self, stream: Http2Stream) -> None:
        if self.streams.pop(stream.id, None) is None:
            return
        if not stream.said:
            self.later.append(frame(RST_STREAM, 0, stream.id, NUMBER.pack(CANCEL)))
        stream.closed(None)
        self.make_room()

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        (code,) = NUMBER.unpack(payload)
        stream = self.streams.pop(number, None)
        if stream is not None:
            unsent = code == REFUSED_STREAM or not stream.said
            stream.closed(Http2Error(f"the server sent RST_STREAM ({code})", code=code, unsent=unsent))
            self.make_room()

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if flags & ACK:
            return
        for identifier, value in SETTING.iter_unpack(payload):
            if identifier == MAX_STREAMS:
                self.most_streams = value
            elif identifier == FRAME_SIZE:
                self.frame_size = value
            elif identifier == INITIAL_WINDOW:
                if value > _LARGEST_WINDOW:
                    raise Http2Error("a window larger than there is")
                for stream in self.streams.values():
                    stream.window += value - self.stream_window
                self.stream_window = value
        self.later.append(frame(SETTINGS, ACK, 0, b""))
        self.send_all_pending()
        self.make_room()

    def _on_push(self, flags: int, number: int, payload: bytes) -> None:
        raise Http2Error("a push that was declined")

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if not flags & ACK:
            pong = frame(PING, ACK, 0, payload)
            asyncio.get_running_loop().call_later(_PONG_AFTER, self.write, pong)

    def _on_goaway(self, flags: int, number: int, payload: bytes) -> None:
        last, code = (number & LAST_ID for number in struct.unpack_from(">LL", payload))
        reason = f"the server is going away ({code}) {payload[8:].decode(errors='replace')}".rstrip()
        self.leaving = True
        for stream in [one for one in self.streams.values() if one.id > last]:
            del self.streams[stream.id]
            stream.closed(Http2Error(reason, unsent=True))
        self._fail_waiting(Http2Error(reason))
        self.make_room()

    def _on_window(self, flags: int, number: int, payload: bytes) -> None:
        more = NUMBER.unpack(payload)[0] & LAST_ID
        if not number:
            self.window += more
            self.send_all_pending()
        elif (stream := self.streams.get(number)) is not None:
            stream.window += more
            if stream.pending:
                self.send_pending(stream)
