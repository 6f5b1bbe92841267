"""One connection to one ZooKeeper server, shared by all tasks: one write a loop tick, replies in order.

Knows frames, request numbers and watch events, nothing of sessions or locks. The records themselves and the
errors are kazoo's; those that kazoo lacks stand in `records.py`.

Why not kazoo's own connection: it lives in threads, builds a selector for each request, and keeps a session
alive while the event loop that does the work is stuck. See docs/backends/zookeeper.md for the measurement.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from kazoo.exceptions import (
    EXCEPTIONS,
    ConnectionLoss,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import (
    Auth,
    CloseInstance,
    Connect,
    GetChildren,
    PingInstance,
    Watch,
)

from asyncdlock import _process
from asyncdlock.backends.zookeeper.names import Contenders
from asyncdlock.backends.zookeeper.records import Record

Future = asyncio.Future[Any]

_HEADER = struct.Struct("!iii")  # length, request number, type
_REPLY = struct.Struct("!iqi")  # request number, zxid, error
_LENGTH = struct.Struct("!i")
_MAX_FRAME = 1 << 28

_WATCH_XID, _PING_XID, _AUTH_XID = -1, -2, -4
_LAST_XID = 2**31 - 1


class Tally:
    """What all connections of one backend have sent and been told; heartbeats do not count."""

    __slots__ = ("commands", "events")

    def __init__(self) -> None:
        self.commands: int = 0
        self.events: int = 0


class Wire(asyncio.Protocol):
    """A connected stream. `closed` is done when it has ended; then every pending request has failed."""

    def __init__(
        self,
        tally: Tally,
        *,
        on_event: Callable[[str], None],
        on_expired: Callable[[], None],
        on_lost: Callable[["Wire"], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._tally = tally
        self._on_event = on_event
        self._on_expired = on_expired
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._outgoing: list[bytes] = []
        self._listings: dict[str, list[asyncio.Future[Contenders]]] = {}
        self._pending: deque[tuple[int, Any, Any]] = deque()
        self._flush_due = False
        self._greeting: Future | None = None
        self._authenticated: Future | None = None
        self._xid = 0
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.last_zxid: int = 0
        self.sent_at: float = time.monotonic()
        self.heard_at: float = self.sent_at

    # Opening

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        _process.cut_in_child(self)

    async def greet(self, greeting: Any) -> Any:
        """Open or resume a session; the server's answer.

        :raises ConnectionLoss: the server closed the connection instead.
        """
        self._greeting = self._loop.create_future()
        record = greeting.serialize()
        self._write(_LENGTH.pack(len(record)) + record)
        return await self._greeting

    async def authenticate(self, scheme: str, credentials: str) -> None:
        """:raises AuthFailedError: the server does not accept them."""
        self._authenticated = self._loop.create_future()
        self._queue(_AUTH_XID, Auth(0, scheme, credentials))
        await self._authenticated

    # Requests

    def send(self, record: Any) -> Future:
        """Queue a request; its reply, or the error that the server answered.

        Cancelling the future does not take the request back. ConnectionLoss leaves open whether it happened.
        """
        future: Future = self._loop.create_future()
        self._submit(record, future)
        return future

    def post(self, record: Any) -> None:
        """Queue a request whose reply nobody needs."""
        self._submit(record, None)

    def list(self, path: str) -> asyncio.Future[Contenders]:
        """The contenders below `path`, read after everything else that is sent in this tick.

        All tasks that ask within one tick share one request: a thousand waiters that arrive together
        would otherwise read a thousand names each.
        """
        future: asyncio.Future[Contenders] = self._loop.create_future()
        if self.closed.done():
            _resolve(future, ConnectionLoss())
            return future
        self._schedule_flush()
        self._listings.setdefault(path, []).append(future)
        return future

    def ping(self) -> None:
        self._queue(_PING_XID, PingInstance)

    def close_session(self) -> None:
        """Ask the server to end the session and its nodes; `closed` follows."""
        self.post(CloseInstance)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _submit(self, record: Any, future: Any) -> None:
        if self.closed.done():
            if future is not None:
                _resolve_all(future, ConnectionLoss())
            return
        self._xid = xid = 1 if self._xid == _LAST_XID else self._xid + 1
        self._pending.append((xid, record, future))
        self._queue(xid, record)
        self._tally.commands += 1

    def _queue(self, xid: int, record: Record) -> None:
        self._schedule_flush()
        body = record.serialize()
        self._outgoing.append(_HEADER.pack(len(body) + 8, xid, record.type) + body)

    def _schedule_flush(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        listings, self._listings = self._listings, {}
        for path, futures in listings.items():
            self._submit(GetChildren(path, None), futures)
        outgoing, self._outgoing = self._outgoing, []
        self._flush_due = False
        self._write(b"".join(outgoing))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.closed.done():
            self.sent_at = time.monotonic()
            self._transport.write(data)

    # Replies

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        received = self._received
        received += data
        start, end = 0, len(received)
        while end - start >= 4:
            (size,) = _LENGTH.unpack_from(received, start)
            if not 0 <= size <= _MAX_FRAME:
                self.abort()
                return
            if end - start - 4 < size:
                break
            self._frame(bytes(received[start + 4 : start + 4 + size]))
            start += 4 + size
        del received[:start]

    def _frame(self, frame: bytes) -> None:
        if self._greeting is not None:
            greeting, self._greeting = self._greeting, None
            _resolve(greeting, Connect.deserialize(frame, 0)[0])
            return
        xid, zxid, error = _REPLY.unpack_from(frame)
        if zxid > 0:
            self.last_zxid = zxid
        if xid == _WATCH_XID:
            self._tally.events += 1
            self._on_event(Watch.deserialize(frame, _REPLY.size)[0].path)
        elif xid == _AUTH_XID:
            if self._authenticated is not None:
                _resolve(self._authenticated, _error(error) if error else True)
        elif xid != _PING_XID:
            self._reply(xid, error, frame)

    def _reply(self, xid: int, error: int, frame: bytes) -> None:
        if not self._pending or self._pending[0][0] != xid:
            self.abort()  # the stream can no longer be trusted
            return
        _, record, future = self._pending.popleft()
        if error == SessionExpiredError.code:
            self._on_expired()
        elif error == SessionMovedError.code:
            self.abort()
        if future is None:
            return
        if error:
            _resolve_all(future, _error(error))
        elif isinstance(future, list):
            _resolve_all(future, Contenders(record.deserialize(frame, _REPLY.size)))
        else:
            result = record.deserialize(frame, _REPLY.size) if hasattr(record, "deserialize") else None
            _resolve(future, result)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)
        # First the session, then those who wait: they ask it at once what to do.
        self._on_lost(self)
        for futures in [future for _, _, future in self._pending if future is not None]:
            _resolve_all(futures, ConnectionLoss())
        for listing in self._listings.values():
            _resolve_all(listing, ConnectionLoss())
        self._pending.clear()
        self._listings.clear()
        self._outgoing.clear()
        for opening in (self._greeting, self._authenticated):
            if opening is not None:
                _resolve(opening, ConnectionLoss())


def _error(code: int) -> ZookeeperError:
    if code in EXCEPTIONS:
        error: ZookeeperError = EXCEPTIONS[code]()
        return error
    return ZookeeperError(f"error {code}")


def _resolve(future: Future, outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
        future.exception()  # now asyncio does not complain when the caller has gone meanwhile
    else:
        future.set_result(outcome)


def _resolve_all(futures: Any, outcome: Any) -> None:
    for future in futures if isinstance(futures, list) else (futures,):
        _resolve(future, outcome)
