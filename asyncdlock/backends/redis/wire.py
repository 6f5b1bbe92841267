"""The wire: one connection that all tasks of a process share.

redis-py opens the connection: TLS, AUTH, HELLO, SELECT, Sentinel. Then the wire owns the stream.
The commands of a loop tick leave in a few large writes, hiredis parses the replies, and because Redis answers
in order, the n-th reply belongs to the n-th command.

- A cancelled call leaves its slot in place: the reply is read and dropped, the stream stays in step.
- A server that answers nothing for `call_timeout` seconds loses the connection.
- A lost connection fails every call in flight as *indefinite*: it may have been carried out.
- While the transport's buffer is full, callers wait before they send.

All that is private to redis-py and used here is in `_take_over`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.replies import error_from_redis_py, error_from_reply
from asyncdlock.errors import BackendError, BackendUnavailable

Opener = Callable[[], Awaitable[AbstractConnection]]
PushHandler = Callable[[list[Any]], None]

# Commands written at once at most: the server works on these while more are made. Without a limit the
# two take turns, and each waits for the other half of the time.
_WRITE_AFTER = 48
_NOTHING = object()
_pack: Callable[[tuple[str | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class Wire:
    """A connection that opens itself when used and again when it was lost."""

    def __init__(
        self,
        opener: Opener,
        *,
        call_timeout: float,
        reconnect_for: float = 2.0,
    ) -> None:
        self._opener = opener
        self._call_timeout = call_timeout
        self._reconnect_for = reconnect_for
        self.on_open: Callable[[Wire], Awaitable[None]] | None = None
        """Runs on every new connection before anything else is sent."""
        self.on_push: PushHandler | None = None
        """Gets every message that is not a reply."""
        self.on_lost: Callable[[], None] | None = None
        """Called when an open connection is lost."""
        self._stream: _Stream | None = None
        self._opening: asyncio.Task[None] | None = None
        # Requests that wait for the connection to open, or to take more.
        self._line: deque[tuple[bytes, asyncio.Future[Any]]] = deque()
        self._was_open = False
        self._closed = False
        self.commands = 0

    def call(self, *command: str | int) -> "asyncio.Future[Any]":
        """Send a command; await what this returns for its reply.

        Not a coroutine, because a future costs less to wait for, and so that the order of calls
        is the order on the wire.

        :raises BackendUnavailable: no connection, or it was lost before the reply came.
        :raises BackendError: the server answered with an error.
        """
        stream = self._stream
        if stream is None or stream.paused or self._line:
            return self._stand_in_line(_pack(command))
        self.commands += 1
        return stream.send(_pack(command))

    def _stand_in_line(self, packed: bytes) -> "asyncio.Future[Any]":
        """Send as soon as the connection takes it, and in order: a release must not overtake its acquire."""
        if self._closed:
            raise BackendUnavailable("the connection was closed", definite=True)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._line.append((packed, future))
        if self._stream is None:
            self._start_opening()
        return future

    def serve_line(self) -> None:
        """Send what stands in line, while the connection takes it. What was cancelled is never sent."""
        stream = self._stream
        while self._line and stream is not None and not stream.paused and not stream.closed:
            packed, future = self._line.popleft()
            if not future.done():
                self.commands += 1
                stream.send(packed, future)

    def _send_home(self, error: BaseException) -> None:
        """There will be no connection: tell those who stand in line, of whom nothing was sent."""
        refused = isinstance(error, BackendError) and not isinstance(error, BackendUnavailable)
        kind = BackendError if refused else BackendUnavailable
        while self._line:
            _, future = self._line.popleft()
            if not future.done():
                future.set_exception(kind(str(error), definite=True))

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    async def ready(self) -> None:
        """Open the connection if there is none.

        :raises BackendError: it cannot be opened.
        """
        if self._closed:
            raise BackendUnavailable("the connection was closed", definite=True)
        if self._stream is not None:
            return
        opening = self._start_opening()
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise BackendUnavailable("the connection was closed", definite=True)
        opening.result()

    async def subscribe(self, verb: str, channel: str) -> None:
        """SUBSCRIBE or SSUBSCRIBE; returns when the server has confirmed it.

        :raises BackendError: not permitted, or the connection was lost.
        """
        await self.ready()
        if self._stream is None:
            raise BackendUnavailable("the connection was lost", definite=True)
        self.commands += 1
        await self._stream.send_subscription(verb, channel)

    def unsubscribe(self, verb: str, channel: str) -> None:
        """UNSUBSCRIBE or SUNSUBSCRIBE, without waiting for the confirmation."""
        if self._stream is not None:
            self.commands += 1
            self._stream.send_subscription(verb, channel).add_done_callback(_forget)

    def post(self, *command: str | int) -> "asyncio.Future[Any] | None":
        """Send without waiting; `None` when there is no open connection that takes it now."""
        stream = self._stream
        if stream is None or stream.paused or self._line:
            return None
        self.commands += 1
        return stream.send(_pack(command))

    def _start_opening(self) -> "asyncio.Task[None]":
        """All who need the connection wait for the same attempt."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect(), name="asyncdlock connect")
            self._opening.add_done_callback(self._opened)
        return self._opening

    def _opened(self, task: "asyncio.Task[None]") -> None:
        self._opening = None
        if task.cancelled():
            self._send_home(BackendUnavailable("the connection was closed", definite=True))
        elif (error := task.exception()) is not None:
            self._send_home(error)
        elif self._line and self._stream is None:
            self._start_opening()  # lost again already

    async def _connect(self) -> None:
        # A server that never answered is reported at once. One that did is given time to restart.
        give_up = time.monotonic() + (self._reconnect_for if self._was_open else 0.0)
        for delay in jittered(0.02, 0.5):
            try:
                return await self._connect_once()
            except BackendError as error:
                if not isinstance(error, BackendUnavailable) or time.monotonic() + delay > give_up:
                    raise
            await asyncio.sleep(delay)
        raise AssertionError("the delays never end")

    async def _connect_once(self) -> None:
        try:
            connection = await self._opener()
        except Exception as error:
            raise error_from_redis_py(error) from error
        stream = _Stream(self, _take_over(connection), self._call_timeout)
        if self.on_open is not None:
            try:
                # The hook finds the stream open; whoever stands in line waits for it.
                self._stream = stream
                await self.on_open(self)
            except BaseException as error:
                stream.close(BackendUnavailable(f"the connection could not be set up: {error}"))
                raise
        if stream.closed:
            raise BackendUnavailable("the connection was lost while it was set up")
        self._stream = stream
        self._was_open = True
        self.serve_line()

    def pushed(self, message: list[Any]) -> None:
        if self.on_push is not None:
            self.on_push(message)

    def lost(self, stream: "_Stream") -> None:
        if self._stream is stream:
            self._stream = None
            if self._closed:
                return
            if self._line:
                self._start_opening()
            if self.on_lost is not None:
                self.on_lost()

    def drop(self, reason: str) -> None:
        """Give up the connection: the next call opens another, perhaps to another server."""
        if self._stream is not None:
            self._stream.close(BackendUnavailable(reason))

    async def aclose(self) -> None:
        """Close the connection; calls in flight fail as indefinite."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        self._send_home(BackendUnavailable("the connection was closed", definite=True))
        if self._stream is not None:
            self._stream.close(BackendUnavailable("the connection was closed"))
            await asyncio.sleep(0)  # one turn of the loop, in which the transport closes its socket


class _Stream(asyncio.Protocol):
    """One open connection: bytes out once per tick, replies matched in order."""

    def __init__(self, wire: Wire, writer: asyncio.StreamWriter, call_timeout: float) -> None:
        # Kept, because a StreamWriter closes its transport when it is collected.
        self._writer = writer
        self.transport: asyncio.WriteTransport = writer.transport
        self.closed = False
        self.paused = False
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._subscriptions: dict[asyncio.Future[Any], tuple[bytes, bytes]] = {}
        self._call_timeout = call_timeout
        # Replies counted so far, and how many there were at the last look of the stall timer.
        self._replies = 0
        self._replies_seen = -1
        self._stall_timer: asyncio.TimerHandle | None = None
        self.transport.set_protocol(self)

    def send(self, packed: bytes, future: "asyncio.Future[Any] | None" = None) -> "asyncio.Future[Any]":
        """Write `packed` at the end of this tick at the latest; its reply becomes the future's result."""
        if future is None:
            future = self._loop.create_future()
        if self.closed:
            future.set_exception(BackendUnavailable("the connection was lost", definite=True))
            return future
        unsent = self._unsent
        if not self._pending:
            # Nothing in flight: do not wait for the end of the tick.
            self.transport.write(packed)
            if self._stall_timer is None:
                self._watch_for_stall()
        elif unsent:
            unsent.append(packed)
            if len(unsent) == _WRITE_AFTER:
                self._flush()
        else:
            unsent.append(packed)
            self._loop.call_soon(self._flush)
        self._pending.append(future)
        return future

    def send_subscription(self, verb: str, channel: str) -> "asyncio.Future[Any]":
        future = self.send(_pack((verb, channel)))
        if not self.closed:
            # Kept until the confirmation comes, also when nobody waits for it any more.
            self._subscriptions[future] = verb.lower().encode(), channel.encode()
        return future

    def _confirms(self, message: list[Any]) -> bool:
        """RESP3 confirms a subscription by a message in the place of the reply; others come unasked."""
        if not self._pending:
            return False
        return self._subscriptions.get(self._pending[0]) == (message[0], message[1])

    def _flush(self) -> None:
        unsent = self._unsent
        if unsent and not self.closed:
            self.transport.write(b"".join(unsent))
        self._unsent = []

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        next_reply = self._reader.gets
        next_future = self._pending.popleft
        try:
            while (reply := next_reply()) is not _NOTHING:
                if type(reply) is hiredis.PushNotification and not self._confirms(reply):
                    self._wire.pushed(reply)
                    continue
                self._replies += 1
                future = next_future()
                if self._subscriptions:
                    self._subscriptions.pop(future, None)
                if future.done():
                    continue
                if isinstance(reply, hiredis.ReplyError):
                    future.set_exception(error_from_reply(reply))
                else:
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.close(BackendUnavailable(f"the server does not speak Redis's protocol: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.close(BackendUnavailable(f"the connection was lost: {error or 'closed by the server'}"))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._wire.serve_line()

    def _watch_for_stall(self) -> None:
        """One timer for all calls: replies come in order, so a silent server stalls the oldest."""
        self._replies_seen = self._replies
        self._stall_timer = self._loop.call_later(self._call_timeout, self._look_for_stall)

    def _look_for_stall(self) -> None:
        self._stall_timer = None
        if not self._pending:
            return
        if self._replies == self._replies_seen:
            self.close(BackendUnavailable(f"the server gave no answer for {self._call_timeout:g} s"))
        else:
            self._watch_for_stall()

    def close(self, reason: BackendUnavailable) -> None:
        """Abort the connection and fail what is in flight."""
        if self.closed:
            return
        self.closed = True
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self.transport.abort()
        self._wire.lost(self)
        for future in self._pending:
            if not future.done():
                future.set_exception(BackendUnavailable(str(reason), definite=False))
        self._pending.clear()
        self._unsent.clear()
        self._subscriptions.clear()


def _forget(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for this one: a lost connection is no news."""
    if not future.cancelled():
        future.exception()


def _take_over(connection: AbstractConnection) -> asyncio.StreamWriter:
    """The stream of a connection that redis-py has set up; redis-py lets go of it.

    The attributes are private to redis-py and have been the same from 5.1 to 8.1; the tests run
    against both ends of that range.
    """
    reader, writer = connection._reader, connection._writer
    assert reader is not None
    assert writer is not None
    if reader.at_eof() or reader.exception() is not None or writer.transport.is_closing():
        # Told to redis-py's protocol, and never again to ours: the wire would wait for its call_timeout.
        writer.transport.abort()
        raise BackendUnavailable("the connection was lost while it was set up", definite=True)
    connection._reader = connection._writer = None
    return writer
