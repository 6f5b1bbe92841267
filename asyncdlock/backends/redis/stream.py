"""One open connection to Redis: commands out in a few large writes, replies matched in order.

The commands of a loop tick leave together, hiredis parses the replies, and because Redis answers in
order, the n-th reply belongs to the n-th command.

- A cancelled call leaves its slot in place: the reply is read and dropped, the stream stays in step.
- A server that answers nothing for `call_timeout` seconds loses the connection.

All that is private to redis-py and used by us is in `take_over`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

import hiredis
from redis.asyncio.connection import AbstractConnection

from asyncdlock import _process
from asyncdlock.backends.redis.busy_poll import BusyPoll
from asyncdlock.backends.redis.replies import error_from_reply
from asyncdlock.errors import BackendUnavailable

# Commands written at once at most: the server works on these while more are made. Without a limit the
# two take turns, and each waits for the other half of the time.
_WRITE_AFTER = 48
_NOTHING = object()

pack: Callable[[tuple[str | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
"""A command as bytes."""


class Answer(Protocol):
    """Where a reply goes: a future, or whoever counts replies without one."""

    def done(self) -> bool:
        """Nobody wants it any more."""
        ...

    def set_result(self, reply: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


class StreamOwner(Protocol):
    """Who is told what happens on a stream."""

    def pushed(self, message: list[Any]) -> None:
        """A message came that is not a reply."""
        ...

    def send_backlog(self) -> None:
        """The stream takes more."""
        ...

    def lost(self, stream: "Stream") -> None:
        """The stream was closed, by whomever; calls in flight fail next."""
        ...


class Stream(asyncio.Protocol):
    """Takes the connection over from redis-py's protocol; belongs to a Wire."""

    def __init__(
        self,
        owner: StreamOwner,
        writer: asyncio.StreamWriter,
        *,
        pushes: bool,
        call_timeout: float,
        stay_awake: bool,
    ) -> None:
        # Kept, because a StreamWriter closes its transport when it is collected.
        self._writer = writer
        self.transport: asyncio.WriteTransport = writer.transport
        self.closed: bool = False
        self.paused: bool = False
        self.pushes = pushes
        """Whether messages can be told from replies (RESP3)."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._pending: deque[Answer] = deque()
        self._unsent: list[bytes] = []
        # Whether several were answered at once: as many will send in the same tick.
        self._crowd = False
        self._busy_poll = BusyPoll(self._pending, self._loop.call_soon) if stay_awake else None
        self._subscriptions: dict[Answer, tuple[bytes, bytes]] = {}
        self._call_timeout = call_timeout
        # Replies counted so far, and how many there were at the last look of the stall timer.
        self._replies = 0
        self._replies_seen = -1
        self._stall_timer: asyncio.TimerHandle | None = None
        self.transport.set_protocol(self)
        _process.cut_in_child(self)

    @overload
    def send(self, packed: bytes) -> "asyncio.Future[Any]": ...
    @overload
    def send(self, packed: bytes, future: AnyAnswer) -> AnyAnswer: ...
    def send(self, packed: bytes, future: Answer | None = None) -> Answer:
        """Write `packed` at the end of this tick at the latest; its reply becomes the future's result."""
        if future is None:
            future = self._loop.create_future()
        if self.closed:
            future.set_exception(BackendUnavailable("the connection was lost", definite=True))
            return future
        pending, unsent = self._pending, self._unsent
        if not pending:
            if self._stall_timer is None:
                self._watch_for_stall()
            if self._busy_poll is not None:
                self._busy_poll.wait()
        pending.append(future)
        if len(pending) == 1 and not self._crowd:
            # Nobody else is about to send: do not wait for the end of the tick.
            self.transport.write(packed)
        elif unsent:
            unsent.append(packed)
            if len(unsent) == _WRITE_AFTER:
                self._flush()
        else:
            unsent.append(packed)
            self._loop.call_soon(self._flush)
        return future

    def send_subscription(self, verb: str, channel: str) -> "asyncio.Future[Any]":
        future = self.send(pack((verb, channel)))
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
        pending = self._pending
        next_future = pending.popleft
        in_flight = len(pending)
        try:
            while (reply := next_reply()) is not _NOTHING:
                if type(reply) is int and not self._subscriptions:
                    # Almost all are: a fence, or how many locks were released.
                    if not (future := next_future()).done():
                        future.set_result(reply)
                    continue
                if type(reply) is hiredis.PushNotification and not self._confirms(reply):
                    self._owner.pushed(reply)
                    continue
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
        answered = in_flight - len(pending)
        self._replies += answered
        self._crowd = answered > 1

    def connection_lost(self, error: Exception | None) -> None:
        self.close(BackendUnavailable(f"the connection was lost: {error or 'closed by the server'}"))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._owner.send_backlog()

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
        self._owner.lost(self)
        for future in self._pending:
            if not future.done():
                future.set_exception(BackendUnavailable(str(reason), definite=False))
        self._pending.clear()
        self._unsent.clear()
        self._subscriptions.clear()


def take_over(connection: AbstractConnection) -> asyncio.StreamWriter:
    """The stream of a connection that redis-py has set up; redis-py lets go of it.

    The attributes are private to redis-py and have been the same from 5.1 to 8.1; the tests run
    against both ends of that range.
    """
    reader, writer = connection._reader, connection._writer
    assert reader is not None
    assert writer is not None
    connection._reader = connection._writer = None
    if reader.at_eof() or reader.exception() is not None or writer.transport.is_closing():
        # Told to redis-py's protocol, and never again to ours: the wire would wait for its call_timeout.
        writer.transport.abort()
        raise BackendUnavailable("the connection was lost while it was set up", definite=True)
    return writer
