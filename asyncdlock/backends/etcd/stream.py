"""One bidirectional gRPC stream that is opened when needed and reopened when it breaks."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc

from asyncdlock.backends.etcd.connection import Connection, Member, Metadata, Verb, cancelling
from asyncdlock.backends.etcd.failures import Advice, classify
from asyncdlock.errors import BackendError

_RETRY_DELAY = 0.05
_RETRY_DELAY_MAX = 1.0
_GOODBYE = 0.2
_LINGER = 1.0


class Listener(Protocol):
    """Who speaks on a stream. The stream knows nothing of what is said."""

    def opened(self) -> None:
        """A fresh stream is there and the server knows nothing: say everything that it must know."""

    def received(self, message: Any) -> None:
        """One message from the server."""

    def broken(self) -> None:
        """The stream is gone, with everything that was on its way."""

    def wanted(self) -> bool:
        """Is there anything to be heard still?"""
        ...


class Stream:
    """Sends in order, delivers to its listener, follows the connection from member to member.

    One reader task and gRPC's own writer serve any number of conversations; `send` never waits.
    A stream on which nothing is expected any more ends soon: opening one costs no round trip.
    """

    def __init__(self, connection: Connection, verb: Verb, listener: Listener) -> None:
        self._connection = connection
        self._verb = verb
        self._listener = listener
        self._outbox: _Outbox | None = None
        self._task: asyncio.Task[None] | None = None
        self._call: Any = None
        self._metadata: Metadata = ()
        self._closed = False
        self._used = False
        self._resting: asyncio.TimerHandle | None = None
        self.member: Member | None = None
        """The member at the other end, while the stream is open."""
        connection.on_silence(self._went_silent)

    def send(self, message: Any) -> None:
        """Queue `message`. Without a stream one is opened, and `Listener.opened` says it instead."""
        self._used = True
        if self._outbox is not None:
            self._outbox.put(message)
        elif self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run())

    def restart(self, *, sign_in: bool = False) -> None:
        """Give up the stream as it is; if the listener wants one, another is opened."""
        if self._call is not None:
            self._call.cancel()
            if sign_in:
                self._connection.forget_token(self._metadata)

    async def aclose(self) -> None:
        """End the stream for good."""
        self._closed = True
        if self._task is None:
            return
        ending = _grpc_tasks() if self._call is not None else set()
        self._task.cancel()
        await asyncio.wait({self._task})
        if ending:
            await asyncio.wait(ending, timeout=_GOODBYE, return_when=asyncio.FIRST_COMPLETED)

    def _went_silent(self, member: Member) -> None:
        if member is self.member:
            self.restart()

    async def _run(self) -> None:
        delay = _RETRY_DELAY
        try:
            while True:
                talked = await self._talk()
                self._listener.broken()
                if not self._listener.wanted():
                    return
                delay = _RETRY_DELAY if talked else min(delay * 2, _RETRY_DELAY_MAX)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
        finally:
            self._task = None

    async def _talk(self) -> bool:
        """Run one stream to its end. Did the server say anything?"""
        talked = False
        try:
            self._metadata = await self._connection.metadata()
            self.member = self._connection.member()
            # The writer of an earlier stream may live a little longer: it has an outbox of its own.
            self._outbox = _Outbox()
            self._listener.opened()
            self._call = self._verb(self.member)(self._count(self._outbox), metadata=self._metadata)
            self._resting = asyncio.get_running_loop().call_later(_LINGER, self._rest)
            # `async for` would tie the call to its generator, and so keep the socket of a closed
            # client open until the garbage collector comes by.
            while (message := await self._call.read()) is not grpc.aio.EOF:
                talked = True
                self._listener.received(message)
        except grpc.aio.AioRpcError as error:
            if classify(error).advice is Advice.SIGN_IN:
                self._connection.forget_token(self._metadata)
            elif self.member is not None:
                self._connection.leave(self.member)
        except BackendError:
            pass  # nobody can be asked; whoever waits has a time limit of its own
        except asyncio.CancelledError:
            # restart() cancels the call, which looks the same here as this task's own cancellation.
            if cancelling():
                raise
        finally:
            if self._resting is not None:
                self._resting.cancel()
            if self._outbox is not None:
                self._outbox.close()
            if self._call is not None:
                self._call.cancel()
            self._outbox = self._call = self.member = self._resting = None
        return talked

    def _rest(self) -> None:
        if self._used or self._listener.wanted():
            self._used = False
            self._resting = asyncio.get_running_loop().call_later(_LINGER, self._rest)
        else:
            self.restart()

    async def _count(self, outbox: "_Outbox") -> AsyncIterator[Any]:
        async for message in outbox:
            self._connection.commands += 1
            yield message


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


def _grpc_tasks() -> set[asyncio.Task[Any]]:
    """The tasks in which gRPC waits for streams to end.

    A cancelled one ends a moment after `cancel`, when gRPC's thread has seen it, and there is
    nothing else to wait for. A client that is closed should leave no task behind.
    """
    name = "_AioCall._handle_status_once_received"
    return {task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == name}
