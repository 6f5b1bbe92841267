"""gRPC's own library as the transport: `transport=grpc`. Slower, and it does not survive a fork."""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import grpc

from asyncdlock.backends.etcd.transport.conversation import Metadata, Received, RpcFailed

_OPTIONS = (
    # A member that died without a word is noticed by pings; etcd tolerates one every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),  # what newer versions of gRPC read instead
    ("grpc.http2.max_pings_without_data", 0),
    # A member that comes back is used again soon, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Two clients of one process must not share a connection, nor hide behind a web proxy.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
)
# What gRPC says when no connection existed to carry the request.
_NEVER_SENT = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS resolution failed",
    "Name resolution",
)
_GOODBYE = 2.0  # a task that ends at once may be late on a busy machine


class _Fork:
    """Whether this process was forked from one that was using gRPC's library.

    It keeps one queue of events for a whole process. A child that uses it, even for a connection of its
    own, hangs, and takes away the answers that its parent waits for.
    """

    def __init__(self) -> None:
        self._in_use = False
        self.unusable = False
        os.register_at_fork(after_in_child=self._note)

    def note_use(self) -> None:
        self._in_use = True

    def _note(self) -> None:
        self.unusable = self._in_use


_fork = _Fork()


def unusable() -> bool:
    """Whether a fork has made the library unusable in this process."""
    return _fork.unusable


class LibraryChannel:
    """A channel of gRPC's library, with the calls that this package makes."""

    def __init__(self, endpoint: str, credentials: grpc.ChannelCredentials | None) -> None:
        _fork.note_use()
        if credentials is None:
            self._channel: Any = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
        self.ending: set[asyncio.Task[Any]] = set()
        """The library's own tasks, which end a moment after the streams that they belong to."""

    def unary_unary(self, path: str, **how: Any) -> "LibraryUnaryMethod":
        """As the stubs ask for it."""
        return LibraryUnaryMethod(self._channel.unary_unary(path, **how))

    def stream_stream(self, path: str, **how: Any) -> "LibraryStreamMethod":
        """As the stubs ask for it."""
        return LibraryStreamMethod(self, self._channel.stream_stream(path, **how))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note the tasks that the library starts for the stream that is opened within.

        It starts some at once, and one more in the first step of those. The loop takes its turns in order:
        nothing but these first steps runs between the two looks that are taken later.
        """
        loop = asyncio.get_running_loop()
        before_steps: set[asyncio.Task[Any]] = set()
        loop.call_soon(lambda: before_steps.update(asyncio.all_tasks(loop)))
        before = asyncio.all_tasks(loop)
        yield
        self._note(asyncio.all_tasks(loop) - before)
        loop.call_soon(lambda: self._note(asyncio.all_tasks(loop) - before_steps))

    def _note(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        for task in tasks:
            self.ending.add(task)
            task.add_done_callback(self.ending.discard)

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        if _fork.unusable:
            return
        await self._channel.close()
        if self.ending:  # a client that is closed should leave no task behind
            await asyncio.wait(self.ending, timeout=_GOODBYE)


class LibraryUnaryMethod:
    """A method with one request and one answer."""

    def __init__(self, method: Any) -> None:
        self._method = method

    async def __call__(self, request: Any, *, timeout: float, metadata: Metadata) -> Any:
        """The answer to `request`.

        :raises RpcFailed: it failed.
        """
        try:
            return await self._method(request, timeout=timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from None

    def begin(self, _: Any, **__: Any) -> bool:
        """Not here: the library answers to tasks alone."""
        return False


class LibraryStreamMethod:
    """A method with many requests and many answers."""

    def __init__(self, channel: LibraryChannel, method: Any) -> None:
        self.channel = channel
        self._method = method

    def __call__(self, metadata: Metadata, received: Received) -> "LibraryConversation":
        """Open a stream."""
        return LibraryConversation(self.channel, self._method, metadata, received)


class LibraryConversation:
    """As `Conversation` has it, by a task that reads and an outbox that the library reads."""

    def __init__(self, channel: LibraryChannel, method: Any, metadata: Metadata, received: Received) -> None:
        self._received = received
        # The library's writer of an earlier stream may live a little longer: this one has its own outbox.
        self._outbox = _Outbox()
        with channel.watching():
            self._call = method(aiter(self._outbox), metadata=metadata)

    def say(self, message: Any) -> None:
        self._outbox.put(message)

    async def ended(self) -> None:
        try:
            # `async for` would tie the call to its generator, and so keep the socket of a closed
            # client open until the garbage collector comes by.
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._received(message)
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from None
        except asyncio.CancelledError:
            # `cancel` looks the same here as the cancellation of the task itself.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            self.cancel()

    def cancel(self) -> None:
        self._outbox.close()
        self._call.cancel()


class _Outbox:
    """What is still to be written on one stream."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, message: Any) -> None:
        self._messages.append(message)
        self._changed.set()

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while not self._closed:
            while self._messages:
                yield self._messages.popleft()
            self._changed.clear()
            if not self._closed:
                await self._changed.wait()


def _failed(error: grpc.aio.AioRpcError) -> RpcFailed:
    details = error.details() or ""
    return RpcFailed(error.code(), details, unsent=any(text in details for text in _NEVER_SENT))
