"""Keep-alives of all leases of a client, on one stream."""

import asyncio
from collections import deque
from typing import Any

from aetcd import rpc

from asyncdlock.backends.etcd.connection import KEEP_ALIVE, EtcdConnection
from asyncdlock.backends.etcd.stream import ReconnectingStream

_GRACE = 0.05

Answer = asyncio.Future[int | None]
"""The seconds that the lease has left, 0 for a dead lease, `None` when no answer came in time."""


class KeepAlive:
    """Asks for leases to be extended and hands each answer to who asked.

    Answers carry the lease id and come in the order of the questions about that lease. A question
    that timed out keeps its turn: its late answer must not be taken for that of the next one,
    which was sent later and would seem to prove more.
    """

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self._stream = ReconnectingStream(connection, KEEP_ALIVE, self)
        self._asked: dict[int, deque[Answer]] = {}

    def ask(self, lease_id: int, timeout: float) -> Answer:
        """Extend a lease. The answer is never an exception; wait for it behind a shield."""
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        self._asked.setdefault(lease_id, deque()).append(answer)
        # Twice, because the loop may have slept itself: what has arrived meanwhile is read first.
        loop.call_later(timeout, loop.call_later, _GRACE, self._late, answer)
        self._stream.send(rpc.LeaseKeepAliveRequest(ID=lease_id))
        return answer

    def opened(self) -> None:
        for lease_id, answers in self._asked.items():
            for _ in answers:
                self._stream.send(rpc.LeaseKeepAliveRequest(ID=lease_id))

    def received(self, message: Any) -> None:
        answers = self._asked.get(message.ID)
        if answers is None:
            return
        answer = answers.popleft()
        if not answers:
            del self._asked[message.ID]
        if not answer.done():
            answer.set_result(int(message.TTL))

    def broken(self) -> None:
        waiting: dict[int, deque[Answer]] = {}
        for lease_id, answers in self._asked.items():
            if live := deque(answer for answer in answers if not answer.done()):
                waiting[lease_id] = live
        self._asked = waiting

    def wanted(self) -> bool:
        return bool(self._asked)

    def probe(self) -> None:
        return None  # every question has a time limit

    async def aclose(self) -> None:
        """End the stream; open questions get no answer."""
        await self._stream.aclose()
        for answers in self._asked.values():
            for answer in answers:
                if not answer.done():
                    answer.set_result(None)
        self._asked.clear()

    def _late(self, answer: Answer) -> None:
        if not answer.done():
            answer.set_result(None)
            # A member that is alive answers a keep-alive in milliseconds.
            if self._stream.member is not None:
                self._connection.leave(self._stream.member, silent=True)
