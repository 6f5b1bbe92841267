"""One bidirectional gRPC stream that is opened when needed and reopened when it breaks."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc

from asyncdlock.backends.etcd.connection import EtcdConnection, EtcdMember, Metadata, Verb, cancelling
from asyncdlock.backends.etcd.failures import Advice, classify
from asyncdlock.errors import BackendError

_RETRY_DELAY = 0.05
_RETRY_DELAY_MAX = 1.0
_GOODBYE = 0.2
_LOOK_EVERY = 1.0
_GRACE = 0.05


class StreamListener(Protocol):
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

    def probe(self) -> Any | None:
        """A message that the server answers at once; `None` from who notices its silence by other means."""
        ...


class ReconnectingStream:
    """Sends in order, delivers to its listener, follows the connection from member to member.

    One reader task and gRPC's own writer serve any number of conversations; `send` never waits.
    A stream on which nothing is expected any more ends soon: opening one costs no round trip.

    Once a second it looks after itself. Requests that were refused by this member go to another one,
    and the stream follows: left behind, nobody would notice when that member freezes. And when nothing
    was heard for a second, the server is asked for a sign of life.
    """

    def __init__(self, connection: EtcdConnection, verb: Verb, listener: StreamListener) -> None:
        self._connection = connection
        self._verb = verb
        self._listener = listener
        self._outbox: _Outbox | None = None
        self._task: asyncio.Task[None] | None = None
        self._call: Any = None
        self._metadata: Metadata = ()
        self._closed = False
        self._used = False
        self._heard = False
        self._answered = False
        self._looking: asyncio.TimerHandle | None = None
        self._unanswered: asyncio.TimerHandle | None = None
        self.member: EtcdMember | None = None
        """The member at the other end, while the stream is open."""
        connection.on_silence(self._member_silent)

    def send(self, message: Any) -> None:
        """Queue `message`. Without a stream one is opened, and `StreamListener.opened` says it instead."""
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

    def _member_silent(self, member: EtcdMember) -> None:
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
            self._heard = False
            self._looking = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look)
            # `async for` would tie the call to its generator, and so keep the socket of a closed
            # client open until the garbage collector comes by.
            while (message := await self._call.read()) is not grpc.aio.EOF:
                talked = self._heard = self._answered = True
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
            for timer in (self._looking, self._unanswered):
                if timer is not None:
                    timer.cancel()
            if self._outbox is not None:
                self._outbox.close()
            if self._call is not None:
                self._call.cancel()
            self._outbox = self._call = self.member = self._looking = self._unanswered = None
        return talked

    def _look(self) -> None:
        """Is the stream still of use, at the right member, and alive?"""
        assert self.member is not None
        wanted = self._listener.wanted()
        if not (self._used or wanted) or self.member.endpoint != self._connection.endpoint:
            self.restart()
            return
        if wanted and not self._heard and self._unanswered is None:
            self._probe()
        self._used = self._heard = False
        self._looking = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look)

    def _probe(self) -> None:
        question = self._listener.probe()
        if question is not None and self._outbox is not None:
            self._outbox.put(question)
            self._answered = False
            patience = self._connection.settings.attempt_timeout
            self._unanswered = asyncio.get_running_loop().call_later(patience, self._check_answered, _GRACE)

    def _check_answered(self, grace: float) -> None:
        if self._answered:
            self._unanswered = None
        elif grace:
            # The loop may have slept itself: what has arrived meanwhile is read first.
            self._unanswered = asyncio.get_running_loop().call_later(grace, self._check_answered, 0.0)
        elif self.member is not None:
            self._connection.leave(self.member, silent=True)

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
