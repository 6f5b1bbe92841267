"""One bidirectional gRPC stream that is opened when needed and reopened when it breaks."""

import asyncio
import random
from typing import Any, Protocol

from asyncdlock.backends.etcd.connection import EtcdConnection, EtcdMember, Verb
from asyncdlock.backends.etcd.failures import Advice, classify
from asyncdlock.backends.etcd.transport.conversation import Conversation, Metadata, RpcFailed
from asyncdlock.errors import BackendError

_RETRY_DELAY = 0.05
_RETRY_DELAY_MAX = 1.0
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

    One stream serves any number of questions and answers; `send` never waits.
    A stream on which nothing is expected any more ends soon: opening one costs no round trip.

    Once a second it looks after itself. Requests that were refused by this member go to another one,
    and the stream follows: left behind, nobody would notice when that member freezes. And when nothing
    was heard for a second, the server is asked for a sign of life.
    """

    def __init__(self, connection: EtcdConnection, verb: Verb, listener: StreamListener) -> None:
        self._connection = connection
        self._verb = verb
        self._listener = listener
        self._task: asyncio.Task[None] | None = None
        self._call: Conversation | None = None
        self._metadata: Metadata = ()
        self._closed = False
        self._used = False
        self._heard = False
        self._answered = False
        self._talked = False
        self._looking: asyncio.TimerHandle | None = None
        self._unanswered: asyncio.TimerHandle | None = None
        self.member: EtcdMember | None = None
        """The member at the other end, while the stream is open."""
        connection.on_silence(self._member_silent)

    def send(self, message: Any) -> None:
        """Queue `message`. Without a stream one is opened, and `StreamListener.opened` says it instead."""
        self._used = True
        if self._call is not None:
            self._say(message)
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
        self._task.cancel()
        await asyncio.wait({self._task})

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
        self._talked = False
        try:
            self._metadata = await self._connection.metadata()
            self.member = self._connection.member()
            self._call = self._verb(self.member)(self._metadata, self._received)
            self._listener.opened()
            self._heard = False
            self._looking = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look)
            await self._call.ended()
        except RpcFailed as error:
            if classify(error).advice is Advice.SIGN_IN:
                self._connection.forget_token(self._metadata)
            elif self.member is not None:
                self._connection.leave(self.member)
        except BackendError:
            pass  # nobody can be asked; whoever waits has a time limit of its own
        finally:
            for timer in (self._looking, self._unanswered):
                if timer is not None:
                    timer.cancel()
            self._call = self.member = self._looking = self._unanswered = None
        return self._talked

    def _received(self, message: Any) -> None:
        self._talked = self._heard = self._answered = True
        self._listener.received(message)

    def _say(self, message: Any) -> None:
        assert self._call is not None
        self._connection.commands += 1
        self._call.say(message)

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
        if question is not None and self._call is not None:
            self._say(question)
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
