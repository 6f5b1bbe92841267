"""One node of a quorum: how it is reached, and how often a server that is down is tried again."""

import asyncio
import time
from typing import Any

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.node import Node
from asyncdlock.backends.redis.replies import ReadOnly
from asyncdlock.backends.redis.stream import Answer
from asyncdlock.backends.redis.wire import Wire
from asyncdlock.errors import BackendError, BackendUnavailable

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Member:
    """Sends requests to one node, and fails them at once while it is known to be down.

    It is then dialled in the background, with pauses that grow and are jittered: a dead node must not
    cost every request a dial, and a server that comes back is not met by all clients at once.
    """

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self._wire = node.wire
        self.name = name
        self.silent = False
        """It let the time of a round pass, and has not answered anything since."""
        self._down: str | None = None
        self._pauses = jittered(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._dial_at = 0.0
        self._dialling: asyncio.Task[None] | None = None

    @property
    def commands(self) -> int:
        return self._node.commands

    @property
    def wire(self) -> Wire:
        return self._wire

    @property
    def is_open(self) -> bool:
        return self._wire.is_open

    def send(self, request: bytes) -> "asyncio.Future[Any]":
        """Send a request; requests to one node arrive in the order of these calls.

        :raises BackendUnavailable: the node is down; nothing was sent.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ask(request, future)
        return future

    def ask(self, request: bytes, answer: Answer) -> None:
        """Send a request, as `send` does; the reply goes to `answer`.

        :raises BackendUnavailable: the node is down; nothing was sent.
        """
        if self._down is not None and not self._wire.is_open:
            if time.monotonic() >= self._dial_at:
                self.dial()
            raise BackendUnavailable(self._down, definite=True)
        self._wire.ask(request, answer)

    def failed(self, error: BackendError) -> None:
        """A request failed: if the node could not be reached, the next ones do not try to."""
        if isinstance(error, ReadOnly):
            self._wire.drop("the server became a replica")
        if error.definite and not self._wire.is_open and self._down is None:
            self._pause(error)

    def dial(self) -> "asyncio.Task[None]":
        """Open the connection in the background, now; all who want it wait for the same attempt."""
        if self._dialling is None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial(), name="asyncdlock dial")
            self._dialling.add_done_callback(self._dialled)
        return self._dialling

    async def _dial(self) -> None:
        try:
            await self._wire.ready()
        except BackendError as error:
            self._pause(error)
        else:
            self._down = None
            self._pauses = jittered(_FIRST_PAUSE, _LONGEST_PAUSE)

    def _dialled(self, _: "asyncio.Task[None]") -> None:
        self._dialling = None

    def _pause(self, error: BackendError) -> None:
        self._down = str(error)
        self._dial_at = time.monotonic() + next(self._pauses)

    async def aclose(self) -> None:
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait((self._dialling,))
        await self._node.aclose()
