"""The wire: one connection that all tasks of a process share.

redis-py opens the connection: TLS, AUTH, HELLO, SELECT, Sentinel. Then the wire owns the stream.
Commands of one loop tick leave in one write, hiredis parses the replies, and because Redis answers
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
        self._opening: asyncio.Task[_Stream] | None = None
        self._was_open = False
        self._closed = False
        self.commands = 0

    async def call(self, *command: str | int) -> Any:
        """Send a command and return its reply.

        :raises BackendUnavailable: no connection, or it was lost before the reply came.
        :raises BackendError: the server answered with an error.
        """
        stream = self._stream
        while stream is None or stream.paused is not None:
            if stream is None:
                stream = await self._open()
            else:
                # Then looked at again: the first to wake may fill the buffer, or the connection be lost.
                await stream.writable()
                stream = self._stream
        self.commands += 1
        return await stream.send(_pack(command))

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    async def ready(self) -> None:
        """Open the connection if there is none.

        :raises BackendError: it cannot be opened.
        """
        if self._stream is None:
            await self._open()

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
        if stream is None or stream.paused is not None:
            return None
        self.commands += 1
        return stream.send(_pack(command))

    async def _open(self) -> "_Stream":
        """The open stream; all who need it meanwhile wait for the same attempt."""
        if self._closed:
            raise BackendUnavailable("the connection was closed", definite=True)
        opening = self._opening
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._connect(), name="asyncdlock connect")
            opening.add_done_callback(self._opened)
            self._opening = opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if opening.cancelled() and caller is not None and not caller.cancelling():
                # aclose() cancelled the attempt; nobody cancelled this caller.
                raise BackendUnavailable("the connection was closed", definite=True) from None
            raise

    def _opened(self, task: "asyncio.Task[_Stream]") -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # retrieved: whoever waited has been told

    async def _connect(self) -> "_Stream":
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

    async def _connect_once(self) -> "_Stream":
        try:
            connection = await self._opener()
        except Exception as error:
            raise error_from_redis_py(error) from error
        stream = _Stream(self, _take_over(connection), self._call_timeout)
        if self.on_open is not None:
            try:
                # Callers that find `_stream` unset wait for this task, so the hook is first on the wire.
                self._stream = stream
                await self.on_open(self)
            except BaseException as error:
                stream.close(BackendUnavailable(f"the connection could not be set up: {error}"))
                raise
        if stream.closed:
            raise BackendUnavailable("the connection was lost while it was set up")
        self._stream = stream
        self._was_open = True
        return stream

    def pushed(self, message: list[Any]) -> None:
        if self.on_push is not None:
            self.on_push(message)

    def lost(self, stream: "_Stream") -> None:
        if self._stream is stream:
            self._stream = None
            if self.on_lost is not None and not self._closed:
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
        self.paused: asyncio.Future[None] | None = None
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

    def send(self, packed: bytes) -> "asyncio.Future[Any]":
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
        self.paused = self._loop.create_future()

    def resume_writing(self) -> None:
        if self.paused is not None:
            if not self.paused.done():
                self.paused.set_result(None)
            self.paused = None

    async def writable(self) -> None:
        if self.paused is not None:
            await asyncio.shield(self.paused)

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
        self.resume_writing()
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
    writer = connection._writer
    assert writer is not None
    connection._reader = connection._writer = None
    return writer
