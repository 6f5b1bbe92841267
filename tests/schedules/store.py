"""A lock server in memory, and the connection of a process to it: each request and reply is a step."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from asyncdlock.errors import BackendUnavailable
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

Choose = Callable[[int], int]
_ANSWERED, _REPLY_LOST, _REQUEST_LOST = range(3)
"""What becomes of a request."""


class Store:
    """One key: who holds it until when, who waits, and the last fence."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.waiting: OrderedDict[str, tuple[Claim, int, asyncio.Future[Grant]]] = OrderedDict()
        self._until = 0.0
        self._fence = 0
        self._timer: asyncio.TimerHandle | None = None

    def left_behind(self) -> list[str]:
        """The holder, then whoever waits."""
        self._expire()
        return [*([self.holder] if self.holder else []), *self.waiting]

    def join(self, claim: Claim, reserve: int, granted: "asyncio.Future[Grant]") -> None:
        self.waiting[claim.owner] = claim, reserve, granted
        self.serve()

    def take(self, claim: Claim) -> Grant | None:
        self._expire()
        return self._grant(claim, 0) if self.holder is None and not self.waiting else None

    def renew(self, claims: Sequence[Claim]) -> list[LeaseState]:
        return [self._renew(claim) for claim in claims]

    def _renew(self, claim: Claim) -> LeaseState:
        self._expire()
        if self.holder != claim.owner:
            return LeaseState.LOST
        self._until = time.monotonic() + claim.ttl
        self._watch()
        return LeaseState.RENEWED

    def release(self, claim: Claim) -> bool:
        self._expire()
        self.waiting.pop(claim.owner, None)
        owned = self.holder == claim.owner
        if owned:
            self.holder = None
        self.serve()
        return owned

    def serve(self) -> None:
        """Grant the lock to the first who waits, if it is free."""
        self._expire()
        if self.holder is None and self.waiting:
            claim, reserve, granted = self.waiting.popitem(last=False)[1]
            grant = self._grant(claim, reserve)
            # A message on its way; whoever has given up releases the claim.
            asyncio.get_running_loop().call_soon(_deliver, granted, grant, None)
        self._watch()

    def _grant(self, claim: Claim, reserve: int) -> Grant:
        self.holder = claim.owner
        self._until = time.monotonic() + claim.ttl
        fence = self._fence + 1
        self._fence = fence + reserve
        return Grant(claim, fence, time.monotonic() + validity(claim.ttl), reserve)

    def _expire(self) -> None:
        if self.holder is not None and self._until <= time.monotonic():
            self.holder = None

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.holder is not None and self.waiting:
            self._timer = asyncio.get_running_loop().call_at(self._until, self.serve)


class Connection:
    """A Backend: one process's requests arrive in order; `choose` decides what becomes of each."""

    name = "store"
    capabilities = Capabilities(fencing=True, fifo=True, push_wakeup=True, interprocess=True, min_ttl=0.01)
    local_queue = True
    local_handoffs = 2

    def __init__(self, store: Store, choose: Choose) -> None:
        self._store = store
        self._choose = choose
        self._requests: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.commands = 0

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        granted: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        await self._ask(partial(self._store.join, claim, reserve, granted))
        return await granted

    async def try_acquire(self, claim: Claim) -> Grant | None:
        grant: Grant | None = await self._ask(partial(self._store.take, claim))
        return grant

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        try:
            states: list[LeaseState] = await self._ask(
                partial(self._store.renew, [one.claim for one in grants])
            )
        except BackendUnavailable:
            return [LeaseState.UNKNOWN] * len(grants)
        return states

    async def release(self, claim: Claim) -> bool:
        owned: bool = await self._ask(partial(self._store.release, claim))
        return owned

    async def raise_fence(self, key: str, above: int) -> None:
        raise NotImplementedError("its capabilities say so")

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _ask(self, request: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Cancelled or not, what was sent is carried out."""
        self.commands += 1
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._requests.append((request, reply))
        loop.call_soon(self._carry_out)
        return reply

    def _carry_out(self) -> None:
        request, reply = self._requests.pop(0)
        outcome = self._choose(3)
        answer = None if outcome == _REQUEST_LOST else request()
        error = None if outcome == _ANSWERED else BackendUnavailable("the connection was lost")
        _deliver(reply, answer, error)


def _deliver(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
