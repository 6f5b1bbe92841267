"""Brings grants to the waiters of this process, and gives back those that nobody waits for any more."""

import contextlib
import time
from collections.abc import Container
from typing import TYPE_CHECKING

from asyncdlock.backends.redis.background import Background
from asyncdlock.backends.redis.queue_server import Handed, QueueServer, Told
from asyncdlock.errors import BackendError

if TYPE_CHECKING:
    from asyncdlock.backends.redis.wait_list import Waiter


class Grants:
    """Who waits, by owner, and how grants reach them: by a message, or by the reply to another's request."""

    def __init__(self, server: QueueServer, background: Background, held: Container[str]) -> None:
        self._server = server
        self._background = background
        self._held = held
        """Owners that have their grant. A message for one of them was overtaken by a reply."""
        self.waiters: dict[str, Waiter] = {}
        self.asking: dict[str, str] = {}
        """Owners whose request to join is under way, and their keys."""
        self.early: dict[str, Told] = {}
        """Messages that overtook the reader of their owner's reply."""

    def by_message(self, message: bytes) -> None:
        """A message on our channel. It is believed only if its owner waits for its very key."""
        told = Told.parse(message)
        if told is None:
            return
        waiter = self.waiters.get(told.owner)
        if waiter is not None and waiter.claim.key == told.key:
            waiter.granted(told.last_fence, waiter.waiting_in.started(told.server_ms))
        elif self.asking.get(told.owner) == told.key:
            self.early[told.owner] = told
        elif told.owner not in self._held:
            self._nobodys(told.key, told.owner, told.last_fence)

    def by_reply(self, key: str, handed: Handed | None, sent: float) -> None:
        """The reply to a request sent at `sent` may tell of a grant to another waiter of ours."""
        if handed is None:
            return
        waiter = self.waiters.get(handed.owner)
        if waiter is not None:
            waiter.granted(handed.last_fence, sent)
        elif handed.owner not in self.asking:  # else the reply to its own request is about to tell it
            self._nobodys(key, handed.owner, handed.last_fence)

    def _nobodys(self, key: str, owner: str, last_fence: int) -> None:
        self._background.start(self._give_back(key, owner, last_fence), f"give back {key}")

    async def _give_back(self, key: str, owner: str, last_fence: int) -> None:
        """Nobody waits for this grant any more.

        The waiter was cancelled; its release may have been carried out before its request, when the
        two travelled on different connections. Unless given back, the lock would be lost for a TTL.
        """
        sent = time.monotonic()
        with contextlib.suppress(BackendError):
            reply = await self._server.give_back(key, owner, last_fence)
            if type(reply) is list:
                self.by_reply(key, Handed.parse(reply), sent)
