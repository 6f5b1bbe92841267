"""The wire: one connection that all tasks of a process share, and that opens itself when used.

redis-py opens the connection: TLS, AUTH, HELLO, SELECT, Sentinel. Then a `Stream` owns it, and the wire
owns the stream, until it is lost and another takes its place.

- A lost connection fails every call in flight as *indefinite*: it may have been carried out.
- While there is no connection yet, or its buffer is full, requests wait in a backlog, in order.
- What waited when no connection could be had fails as *definite*: nothing of it was sent.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from redis.asyncio.connection import AbstractConnection

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.replies import error_from_redis_py
from asyncdlock.backends.redis.stream import Answer, Stream, pack, take_over
from asyncdlock.errors import BackendError, BackendUnavailable

Opener = Callable[[], Awaitable[AbstractConnection]]
PushHandler = Callable[[list[Any]], None]


class WireOptions(TypedDict, total=False):
    """What a URL says of its wires, see `Wire`."""

    call_timeout: float
    stay_awake: bool


class Wire:
    """A connection that opens itself when used and again when it was lost.

    `call_timeout`: seconds after which a silent server loses the connection. `reconnect_for`: how long a
    server that was reached before is given to come back. `stay_awake`: see `busy_poll.py`.
    """

    def __init__(
        self,
        opener: Opener,
        *,
        call_timeout: float = 5.0,
        reconnect_for: float = 2.0,
        stay_awake: bool = True,
    ) -> None:
        self._opener = opener
        self._call_timeout = call_timeout
        self._stay_awake = stay_awake
        self._reconnect_for = reconnect_for
        self.on_open: Callable[[Wire], Awaitable[None]] | None = None
        """Runs on every new connection before anything else is sent."""
        self.on_push: PushHandler | None = None
        """Gets every message that is not a reply."""
        self.on_lost: Callable[[], None] | None = None
        """Called when an open connection is lost."""
        self._stream: Stream | None = None
        self._opening: asyncio.Task[None] | None = None
        # Requests that wait for the connection to open, or to take more.
        self._backlog: deque[tuple[bytes, Answer]] = deque()
        self._was_open = False
        self._closed = False
        self.commands: int = 0

    def call(self, *command: str | int) -> "asyncio.Future[Any]":
        """Send a command, see `send`."""
        return self.send(pack(command))

    def send(self, packed: bytes) -> "asyncio.Future[Any]":
        """Send a command that is packed; await what this returns for its reply.

        Not a coroutine, because a future costs less to wait for, and so that the order of calls
        is the order on the wire.

        :raises BackendUnavailable: no connection, or it was lost before the reply came.
        :raises BackendError: the server answered with an error.
        """
        stream = self._stream
        if stream is None or stream.paused or self._backlog:
            return self._enqueue(packed)
        self.commands += 1
        return stream.send(packed)

    def ask(self, packed: bytes, answer: Answer) -> None:
        """Send a command that is packed; its reply goes to `answer` as soon as it is read.

        :raises BackendUnavailable: the wire was closed.
        """
        stream = self._stream
        if stream is None or stream.paused or self._backlog:
            self._put_off(packed, answer)
        else:
            self.commands += 1
            stream.send(packed, answer)

    def _enqueue(self, packed: bytes) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put_off(packed, future)
        return future

    def _put_off(self, packed: bytes, answer: Answer) -> None:
        """Send as soon as the connection takes it, and in order: a release must not overtake its acquire."""
        if self._closed:
            raise BackendUnavailable("the connection was closed", definite=True)
        self._backlog.append((packed, answer))
        if self._stream is None:
            self._start_opening()

    def send_backlog(self) -> None:
        """Send what waits, while the connection takes it. What was cancelled is never sent."""
        stream = self._stream
        while self._backlog and stream is not None and not stream.paused and not stream.closed:
            packed, future = self._backlog.popleft()
            if not future.done():
                self.commands += 1
                stream.send(packed, future)

    def _fail_backlog(self, error: BaseException) -> None:
        """There will be no connection: fail what waits, of which nothing was sent."""
        refused = isinstance(error, BackendError) and not isinstance(error, BackendUnavailable)
        kind = BackendError if refused else BackendUnavailable
        while self._backlog:
            _, future = self._backlog.popleft()
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
            raise BackendUnavailable("the connection was lost", definite=False)
        if not self._stream.pushes:
            raise BackendError(
                "redis-queue:// cannot wait on a connection with protocol=2: its messages need RESP3",
                definite=True,
            )
        self.commands += 1
        await self._stream.send_subscription(verb, channel)

    def unsubscribe(self, verb: str, channel: str) -> None:
        """UNSUBSCRIBE or SUNSUBSCRIBE, without waiting for the confirmation."""
        if self._stream is not None:
            self.commands += 1
            self._stream.send_subscription(verb, channel).add_done_callback(_forget)

    def post(self, packed: bytes) -> "asyncio.Future[Any] | None":
        """Send a packed command now; `None` when there is no open connection that takes it now."""
        stream = self._stream
        if stream is None or stream.paused or self._backlog:
            return None
        self.commands += 1
        return stream.send(packed)

    def _start_opening(self) -> "asyncio.Task[None]":
        """All who need the connection wait for the same attempt."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect(), name="asyncdlock connect")
            self._opening.add_done_callback(self._opened)
        return self._opening

    def _opened(self, task: "asyncio.Task[None]") -> None:
        self._opening = None
        if task.cancelled():
            self._fail_backlog(BackendUnavailable("the connection was closed", definite=True))
        elif (error := task.exception()) is not None:
            self._fail_backlog(error)
        elif self._backlog and self._stream is None:
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
        pushes = int(connection.protocol) == 3
        stream = Stream(
            self,
            take_over(connection),
            pushes=pushes,
            call_timeout=self._call_timeout,
            stay_awake=self._stay_awake,
        )
        if self.on_open is not None:
            try:
                # The hook finds the stream open; the backlog waits for it.
                self._stream = stream
                await self.on_open(self)
            except BaseException as error:
                stream.close(BackendUnavailable(f"the connection could not be set up: {error}"))
                raise
        if stream.closed:
            raise BackendUnavailable("the connection was lost while it was set up")
        self._stream = stream
        self._was_open = True
        self.send_backlog()

    def pushed(self, message: list[Any]) -> None:
        if self.on_push is not None:
            self.on_push(message)

    def lost(self, stream: "Stream") -> None:
        if self._stream is stream:
            self._stream = None
            if self._closed:
                return
            if self._backlog:
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
        self._fail_backlog(BackendUnavailable("the connection was closed", definite=True))
        if self._stream is not None:
            self._stream.close(BackendUnavailable("the connection was closed"))
            await asyncio.sleep(0)  # one turn of the loop, in which the transport closes its socket


def _forget(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for this one: a lost connection is no news."""
    if not future.cancelled():
        future.exception()
