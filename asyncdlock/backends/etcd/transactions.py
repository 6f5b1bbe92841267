"""Transactions of many tasks, sent together: one request a loop tick instead of one a task.

A request costs the client about 100 µs of CPU and the server one consensus round, whatever it
carries. etcd lets a transaction contain others, each with its own comparisons. What that gains is
measured by bench.etcd_reference: "asyncdlock" beside "one shared lease, a call per request".
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from aetcd import rpc

from asyncdlock.backends.etcd.connection import RANGE, TXN, Begun, EtcdConnection
from asyncdlock.errors import BackendError, BackendUnavailable

# etcd allows 128 operations in a transaction, where one inside another counts on top of its parent's.
MAX_TOGETHER = 64
MAX_OPERATIONS = 64
# Under load further requests wait for an answer, and so go out in larger groups.
_MAX_IN_FLIGHT = 8
# This many or more go out as two groups when nothing is in flight: tasks that are answered together ask again
# together, and this way the server works on one half while the client works on the other.
_IN_HALVES = 16
# After so many requests that each carried one transaction, and had no other beside them, one task alone is at
# work: nothing is gained by waiting for others until the end of the tick.
_SURELY_ALONE = 16


class TxnOutcome(NamedTuple):
    """What one transaction did."""

    reply: Any
    revision: int
    """The store's revision when the transaction had been applied."""
    uncertain: bool
    """A copy of this transaction may be on its way still, and be applied at any time."""


class _Item(NamedTuple):
    request: Any
    joins: str | None
    deletes: bool
    outcome: asyncio.Future[TxnOutcome]
    number: int
    """In the order of submission."""


class TransactionBatcher:
    """Queues transactions and sends what has gathered at the end of each loop tick."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self._queue: OrderedDict[asyncio.Future[TxnOutcome], _Item] = OrderedDict()
        self._waiters: dict[asyncio.Future[TxnOutcome], asyncio.Future[TxnOutcome]] = {}
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._scheduled = False
        self._alone = 0  # how many such requests there were in a row
        self.submitted: int = 0

    def submit(
        self, request: Any, *, joins: str | None = None, deletes: bool = False
    ) -> asyncio.Future[TxnOutcome]:
        """Send `request` with the next group. Its result is `TxnOutcome` or a `BackendError`.

        The future is not tied to who asked: wait for its `answer`, and a cancelled caller leaves a
        request that runs to its end. `joins` names the lock whose queue the transaction
        enters: keys that are created together have the same revision, and a queue ordered by
        revision must not contain a tie, so two of the same name never go together. What `deletes`
        comes before what reads in the same group: whoever watches from the next revision on has seen
        every deletion up to this one.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[TxnOutcome] = loop.create_future()
        self.submitted += 1
        self._queue[outcome] = _Item(request, joins, deletes, outcome, self.submitted)
        if self._in_flight:
            self._alone = 0
        if self._alone >= _SURELY_ALONE:
            self._flush()
        elif not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._flush)
        return outcome

    def answer(self, outcome: asyncio.Future[TxnOutcome]) -> asyncio.Future[TxnOutcome]:
        """What to await in place of `outcome`: `asyncio.shield`, less the turn of the loop that it takes."""
        if outcome.done() or outcome in self._waiters:
            return asyncio.shield(outcome)
        self._waiters[outcome] = waiter = asyncio.get_running_loop().create_future()
        return waiter

    async def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What each of `keys` contains, without a transaction: a full etcd 3.5 takes none, not even to read.

        :raises BackendError: no member answered, or etcd refused.
        """
        asked = (self._connection.call(RANGE, rpc.RangeRequest(key=key)) for key in keys)
        found = [reply.message.kvs for reply in await asyncio.gather(*asked)]
        return [kvs[0].value if kvs else None for kvs in found]

    def withdraw(self, outcome: asyncio.Future[TxnOutcome]) -> bool:
        """Take back a transaction that has not been sent; `False` when it has."""
        if self._queue.pop(outcome, None) is None:
            return False
        outcome.cancel()
        if (waiter := self._waiters.pop(outcome, None)) is not None:
            waiter.cancel()
        return True

    async def aclose(self) -> None:
        """Wait for what was sent; its time limit bounds the wait."""
        while self._in_flight or self._queue:
            self._answered.clear()
            await self._answered.wait()

    def _flush(self) -> None:
        self._scheduled = False
        most = MAX_TOGETHER
        if not self._in_flight and _IN_HALVES <= len(self._queue) < 2 * MAX_TOGETHER:
            most = (len(self._queue) + 1) // 2
        while self._queue and self._in_flight < _MAX_IN_FLIGHT:
            self._in_flight += 1
            group = self._next_group(most)
            self._alone = self._alone + 1 if len(group) == 1 else 0
            # Usually no task is needed: the answer finds its way by itself.
            told = partial(self._told, group, self.submitted)
            if not self._connection.begin(TXN, _together(group), told):
                self._start(group, self.submitted)

    def _told(self, group: list[_Item], queued: int, message: Any, begun: Begun | None) -> None:
        if begun is not None:
            self._start(group, queued, begun)
            return
        self._settle(group, message, uncertain=False)
        self._done()

    def _start(self, group: list[_Item], queued: int, begun: Begun | None = None) -> None:
        task = asyncio.create_task(self._send(group, queued, begun))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._done()

    def _done(self) -> None:
        self._in_flight -= 1
        self._answered.set()
        if self._queue:
            self._flush()

    def _next_group(self, most: int) -> list[_Item]:
        group: list[_Item] = []
        postponed: list[_Item] = []
        joined: set[str] = set()
        while self._queue and len(group) + len(postponed) < most:
            _, item = self._queue.popitem(last=False)
            if item.joins is not None and item.joins in joined:
                postponed.append(item)
                continue
            if item.joins is not None:
                joined.add(item.joins)
            group.append(item)
        for item in reversed(postponed):
            self._queue[item.outcome] = item
            self._queue.move_to_end(item.outcome, last=False)
        group.sort(key=_deletes_nothing)
        return group

    def _fail_queued(self, until: int, error: BackendError) -> None:
        """Nobody has answered for as long as these wait: to be asked for, they would wait as long again."""
        while self._queue:
            first = next(iter(self._queue.values()))
            if first.number > until:
                break
            del self._queue[first.outcome]
            self._fail(first, error, definite=True)

    async def _send(self, group: list[_Item], queued: int, begun: Begun | None) -> None:
        """`queued`: the last that was submitted when it was first sent."""
        if len(group) == 1:
            await self._send_alone(group[0], begun, queued=queued)
            return
        try:
            reply = await self._connection.call(TXN, _together(group), begun=begun)
        except BackendUnavailable as error:
            for item in group:
                self._fail(item, error, error.definite)
            self._fail_queued(queued, error)
        except BackendError as error:
            # One of the group is at fault, and etcd does not say which.
            await asyncio.gather(*(self._send_alone(item, uncertain=not error.definite) for item in group))
        else:
            self._settle(group, reply.message, reply.uncertain)

    async def _send_alone(
        self, item: _Item, begun: Begun | None = None, *, uncertain: bool = False, queued: int = 0
    ) -> None:
        """`uncertain`: as part of a group it may have been carried out already."""
        try:
            reply = await self._connection.call(TXN, item.request, begun=begun)
        except BackendError as error:
            self._fail(item, error, error.definite and not uncertain)
            if isinstance(error, BackendUnavailable):
                self._fail_queued(queued, error)
        else:
            self._settle([item], reply.message, uncertain or reply.uncertain)

    def _settle(self, group: list[_Item], message: Any, uncertain: bool) -> None:
        """Tell each what the answer says of its own request."""
        revision = message.header.revision
        if len(group) == 1:
            self._tell(group[0].outcome, TxnOutcome(message, revision, uncertain))
            return
        for item, response in zip(group, message.responses, strict=True):
            self._tell(item.outcome, TxnOutcome(response.response_txn, revision, uncertain))

    def _tell(self, outcome: asyncio.Future[TxnOutcome], result: TxnOutcome) -> None:
        outcome.set_result(result)
        waiter = self._waiters.pop(outcome, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    def _fail(self, item: _Item, error: BackendError, definite: bool) -> None:
        # Each waiter raises an error of its own: a shared one would collect everybody's traceback.
        own = type(error)(str(error), definite=definite)
        item.outcome.set_exception(own)
        # A cancelled caller never looks; that is no reason to log it.
        item.outcome.exception()
        waiter = self._waiters.pop(item.outcome, None)
        if waiter is not None and not waiter.done():
            waiter.set_exception(own)
            waiter.exception()


def _together(group: list[_Item]) -> Any:
    """One request for all of them."""
    if len(group) == 1:
        return group[0].request
    request = rpc.TxnRequest()
    for item in group:
        request.success.add().request_txn.CopyFrom(item.request)
    return request


def _deletes_nothing(item: _Item) -> bool:
    return not item.deletes
