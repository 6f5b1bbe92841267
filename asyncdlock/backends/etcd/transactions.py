"""TransactionBatcher of many tasks, sent together: one request a loop tick instead of one a task.

A gRPC call costs the client about 200 µs of CPU and the server one consensus round, whatever it
carries. etcd lets a transaction contain others, each with its own comparisons. What that gains is
measured by bench.etcd_reference: "asyncdlock" beside "one shared lease, a call per request".
"""

import asyncio
from collections import OrderedDict
from typing import Any, NamedTuple

from aetcd import rpc

from asyncdlock.backends.etcd.connection import TXN, EtcdConnection
from asyncdlock.errors import BackendError, BackendUnavailable

# etcd allows 128 operations in a transaction, where one inside another counts on top of its parent's.
MAX_TOGETHER = 64
MAX_OPERATIONS = 64
# Under load further requests wait for an answer, and so go out in larger groups.
_MAX_IN_FLIGHT = 8


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


class TransactionBatcher:
    """Queues transactions and sends what has gathered at the end of each loop tick."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self._queue: OrderedDict[asyncio.Future[TxnOutcome], _Item] = OrderedDict()
        self._sending: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self.submitted: int = 0

    def submit(
        self, request: Any, *, joins: str | None = None, deletes: bool = False
    ) -> asyncio.Future[TxnOutcome]:
        """Send `request` with the next group. Its result is `TxnOutcome` or a `BackendError`.

        The future is not tied to who asked: wait for it behind a shield, and a cancelled caller
        leaves a request that runs to its end. `joins` names the lock whose queue the transaction
        enters: keys that are created together have the same revision, and a queue ordered by
        revision must not contain a tie, so two of the same name never go together. What `deletes`
        comes before what reads in the same group: whoever watches from the next revision on has seen
        every deletion up to this one.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[TxnOutcome] = loop.create_future()
        self._queue[outcome] = _Item(request, joins, deletes, outcome)
        self.submitted += 1
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._flush)
        return outcome

    def withdraw(self, outcome: asyncio.Future[TxnOutcome]) -> bool:
        """Take back a transaction that has not been sent; `False` when it has."""
        if self._queue.pop(outcome, None) is None:
            return False
        outcome.cancel()
        return True

    async def aclose(self) -> None:
        """Wait for what was sent; its time limit bounds the wait."""
        while self._sending or self._queue:
            if self._sending:
                await asyncio.wait(self._sending)
            else:
                await asyncio.sleep(0)

    def _flush(self) -> None:
        self._scheduled = False
        while self._queue and len(self._sending) < _MAX_IN_FLIGHT:
            task = asyncio.create_task(self._send(self._next_group()))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._flush()

    def _next_group(self) -> list[_Item]:
        group: list[_Item] = []
        postponed: list[_Item] = []
        joined: set[str] = set()
        while self._queue and len(group) + len(postponed) < MAX_TOGETHER:
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

    async def _send(self, group: list[_Item]) -> None:
        if len(group) == 1:
            await self._send_alone(group[0])
            return
        inner = [rpc.RequestOp(request_txn=item.request) for item in group]
        try:
            reply = await self._connection.call(TXN, rpc.TxnRequest(success=inner))
        except BackendUnavailable as error:
            for item in group:
                _fail(item, error, error.definite)
        except BackendError as error:
            # One of the group is at fault, and etcd does not say which.
            await asyncio.gather(*(self._send_alone(item, not error.definite) for item in group))
        else:
            revision = reply.message.header.revision
            for item, response in zip(group, reply.message.responses, strict=True):
                item.outcome.set_result(TxnOutcome(response.response_txn, revision, reply.uncertain))

    async def _send_alone(self, item: _Item, uncertain: bool = False) -> None:
        """`uncertain`: as part of a group it may have been carried out already."""
        try:
            reply = await self._connection.call(TXN, item.request)
        except BackendError as error:
            _fail(item, error, error.definite and not uncertain)
        else:
            message = reply.message
            doubt = uncertain or reply.uncertain
            item.outcome.set_result(TxnOutcome(message, message.header.revision, doubt))


def _deletes_nothing(item: _Item) -> bool:
    return not item.deletes


def _fail(item: _Item, error: BackendError, definite: bool) -> None:
    # Each waiter raises an error of its own: a shared one would collect everybody's traceback.
    item.outcome.set_exception(type(error)(str(error), definite=definite))
    # A cancelled caller never looks; that is no reason to log it.
    item.outcome.exception()
