"""The sending half of an HTTP/2 connection: streams, and what may be written of them when."""

import asyncio
from collections import deque

from asyncdlock.backends.etcd.transport.frames import (
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    NUMBER,
    RST_STREAM,
    Headers,
    frame,
)

DEFAULT_WINDOW = 65_535
LARGEST_FRAME = 16_384  # what every HTTP/2 peer starts with
LAST_ID = (1 << 31) - 1


class Http2Error(Exception):
    """The connection or the stream is over; `unsent`: the server certainly did not act on it."""

    def __init__(self, reason: str, *, code: int | None = None, unsent: bool = False) -> None:
        super().__init__(reason)
        self.code: int | None = code
        """Of RST_STREAM, when that is what came."""
        self.unsent: bool = unsent


class Http2Stream:
    """One exchange; who opens it is told what arrives."""

    __slots__ = ("id", "pending", "said", "unacknowledged", "window")

    def __init__(self) -> None:
        self.id: int = 0
        """0 until it may be opened."""
        self.window: int = 0
        """How much more may be sent."""
        self.pending: deque[tuple[bytes, bool]] = deque()
        """Not sent yet, and whether it is the last."""
        self.said: bool = False
        """All that is to be said has been written."""
        self.unacknowledged: int = 0

    def headers(self, headers: Headers) -> None:
        """Headers or trailers have come."""
        raise NotImplementedError

    def data(self, data: bytes) -> None:
        """A part of the answer has come."""
        raise NotImplementedError

    def closed(self, error: Http2Error | None) -> None:
        """Nothing will come any more; `None`: the server has said it all."""
        raise NotImplementedError


class Http2Sender:
    """Writes frames as soon as it may.

    That is within the windows of the stream and of the connection, and no more streams at once than the
    server takes.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.leaving: bool = False
        """The server takes no further streams here, or there are no numbers left."""
        self.error: Http2Error | None = None
        """Why the connection is over."""
        self.streams: dict[int, Http2Stream] = {}
        self.waiting: dict[Http2Stream, bytes] = {}
        """Streams that the server does not take yet, and their headers."""
        self.later: list[bytes] = []
        """Frames that wait for the next write."""
        self.window: int = DEFAULT_WINDOW
        self.stream_window: int = DEFAULT_WINDOW
        self.frame_size: int = LARGEST_FRAME
        self.most_streams: int = LAST_ID
        self._next_id = 1
        self._flushing = False

    def open(self, stream: Http2Stream, block: bytes) -> None:
        """Open `stream` with these encoded headers, now or when the server takes another one."""
        if self.leaving:
            stream.closed(Http2Error(str(self.error or "the server is going away"), unsent=True))
            return
        if len(self.streams) >= self.most_streams:
            self.waiting[stream] = block
            return
        stream.id, self._next_id = self._next_id, self._next_id + 2
        self.leaving = self.leaving or self._next_id > LAST_ID
        stream.window = self.stream_window
        self.streams[stream.id] = stream
        self.later.append(frame(HEADERS, END_HEADERS, stream.id, block))
        if stream.pending:
            self.send_pending(stream)
        self.flush()

    def send(self, stream: Http2Stream, data: bytes) -> None:
        """Send `data` with what else there is, as far as the windows allow, and the rest when they do."""
        stream.pending.append((data, False))
        if stream.id and len(stream.pending) == 1:
            self.send_pending(stream)
            if not self._flushing:
                # What else is said in this turn of the loop goes along: a write costs more than it carries.
                self._flushing = True
                asyncio.get_running_loop().call_soon(self.flush)

    def abandon(self, stream: Http2Stream) -> None:
        """Nobody wants the answer any more."""
        if not stream.id:
            self.waiting.pop(stream, None)
        elif self.streams.pop(stream.id, None) is not None:
            self.write(frame(RST_STREAM, 0, stream.id, NUMBER.pack(CANCEL)))
            self.make_room()

    def send_pending(self, stream: Http2Stream) -> None:
        """Write what the windows allow of what `stream` still has to say."""
        while stream.pending:
            data, last = stream.pending[0]
            room = min(stream.window, self.window, self.frame_size)
            if room <= 0 and data:
                return
            part, rest = (data, b"") if len(data) <= room else (data[:room], data[room:])
            stream.window -= len(part)
            self.window -= len(part)
            ends = last and not rest
            self.later.append(frame(DATA, END_STREAM if ends else 0, stream.id, part))
            if rest:
                stream.pending[0] = rest, last
            else:
                stream.pending.popleft()
                stream.said = ends

    def send_all_pending(self) -> None:
        """The same for every stream."""
        for stream in self.streams.values():
            if self.window <= 0:
                break
            self.send_pending(stream)
        self.flush()

    def make_room(self) -> None:
        """A stream has ended."""
        while self.waiting and not self.leaving and len(self.streams) < self.most_streams:
            stream = next(iter(self.waiting))
            self.open(stream, self.waiting.pop(stream))
        if self.leaving and not self.streams:
            self.close("nothing was left to be said")

    def write(self, data: bytes) -> None:
        """Send these frames, and what waits for the next write."""
        self.later.append(data)
        self.flush()

    def flush(self) -> None:
        """Send what waits for the next write."""
        self._flushing = False
        if self.later and self.transport is not None and self.error is None:
            self.transport.write(b"".join(self.later))
            self.later.clear()

    def close(self, reason: str) -> None:
        """Close at once, and end every stream."""
        raise NotImplementedError
