"""What the tasks of a client say to etcd travels together, and nobody who is cancelled takes it along."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from aetcd import rpc

from asyncdlock.backends.etcd import requests
from asyncdlock.backends.etcd.connection import TXN, Begun, EtcdConnection, Verb
from asyncdlock.backends.etcd.settings import parse
from asyncdlock.backends.etcd.transactions import TransactionBatcher, TxnOutcome
from asyncdlock.errors import BackendError
from tests.backends.http2_server import http2_server

_DENIED, _EXHAUSTED = 7, 8  # gRPC's numbers


class Answering:
    """A connection whose answers come when the test says so."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._told: list[Callable[[Any, Begun | None], None]] = []

    def begin(self, verb: Verb, request: Any, told: Callable[[Any, Begun | None], None]) -> bool:
        self.sent.append(request)
        self._told.append(told)
        return True

    def answer(self) -> None:
        """The oldest request that has no answer."""
        told = self._told.pop(0)
        request = self.sent[len(self.sent) - len(self._told) - 1]
        reply = rpc.TxnResponse(succeeded=True, header=rpc.ResponseHeader(revision=7))
        for _ in range(_parts(request)):
            reply.responses.add().response_txn.succeeded = True
        told(reply, None)

    @property
    def sizes(self) -> list[int]:
        """How many transactions each request carried."""
        return [_parts(request) or 1 for request in self.sent]


def _parts(request: Any) -> int:
    return len([operation for operation in request.success if operation.HasField("request_txn")])


@pytest.fixture
def connection() -> Answering:
    return Answering()


@pytest.fixture
def transactions(connection: Answering) -> TransactionBatcher:
    return TransactionBatcher(cast("EtcdConnection", connection))


def submit(transactions: TransactionBatcher, count: int) -> "list[asyncio.Future[TxnOutcome]]":
    return [transactions.submit(requests.read([b"%d" % number])) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (15, [15]), (16, [8, 8]), (51, [26, 25]), (200, [64, 64, 64, 8])]
)
async def test_many_that_come_together_leave_the_server_and_the_client_half_each(
    connection: Answering, transactions: TransactionBatcher, count: int, sizes: list[int]
) -> None:
    """While the server works on one half, the client can work on the other."""
    submit(transactions, count)
    await asyncio.sleep(0)
    assert connection.sizes == sizes


async def one_by_one(connection: Answering, transactions: TransactionBatcher, count: int) -> None:
    """One task that asks again when it has its answer."""
    for _ in range(count):
        [outcome] = submit(transactions, 1)
        await asyncio.sleep(0)
        connection.answer()
        await transactions.answer(outcome)


async def test_who_has_long_been_alone_does_not_wait_for_others(
    connection: Answering, transactions: TransactionBatcher
) -> None:
    await one_by_one(connection, transactions, 15)
    submit(transactions, 1)
    assert len(connection.sent) == 15, "there may be others in this tick"
    await asyncio.sleep(0)
    connection.answer()
    submit(transactions, 1)
    assert len(connection.sent) == 17


async def test_whoever_comes_beside_one_that_was_alone_travels_together_again(
    connection: Answering, transactions: TransactionBatcher
) -> None:
    await one_by_one(connection, transactions, 20)
    submit(transactions, 10)
    assert connection.sizes == [1] * 21
    await asyncio.sleep(0)
    assert connection.sizes == [1] * 21 + [9]
    for _ in range(2):
        connection.answer()
    submit(transactions, 10)
    await asyncio.sleep(0)
    assert connection.sizes == [1] * 21 + [9, 10]


async def test_while_one_half_is_on_its_way_the_other_goes_as_one(
    connection: Answering, transactions: TransactionBatcher
) -> None:
    submit(transactions, 40)
    await asyncio.sleep(0)
    connection.answer()
    submit(transactions, 20)
    await asyncio.sleep(0)
    assert connection.sizes == [20, 20, 20]


async def test_every_transaction_is_told_its_own_part_of_the_answer(
    connection: Answering, transactions: TransactionBatcher
) -> None:
    outcomes = submit(transactions, 20)
    waiting = [asyncio.ensure_future(transactions.answer(outcome)) for outcome in outcomes]
    await asyncio.sleep(0)
    connection.answer()
    connection.answer()
    assert await asyncio.gather(*waiting) == [outcome.result() for outcome in outcomes]
    assert {outcome.result().revision for outcome in outcomes} == {7}


async def test_a_cancelled_caller_leaves_a_request_that_runs_to_its_end(
    connection: Answering, transactions: TransactionBatcher
) -> None:
    [outcome] = submit(transactions, 1)

    async def ask() -> TxnOutcome:
        return await transactions.answer(outcome)

    cancelled, other = asyncio.create_task(ask()), asyncio.create_task(ask())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert cancelled.cancelled()
    assert not outcome.done()
    connection.answer()
    assert await other == outcome.result() == await transactions.answer(outcome)


async def test_who_waits_wakes_after_what_was_to_be_done_first(
    connection: Answering, transactions: TransactionBatcher
) -> None:
    """A claim is noted as doubtful, a place as gone, before its owner goes on."""
    [outcome] = submit(transactions, 1)
    order: list[str] = []
    outcome.add_done_callback(lambda _: order.append("noted"))

    async def ask() -> None:
        await transactions.answer(outcome)
        order.append("awake")

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    connection.answer()
    await task
    assert order == ["noted", "awake"]


async def test_what_is_withdrawn_ends_for_who_waits_as_well(
    connection: Answering, transactions: TransactionBatcher
) -> None:
    [outcome] = submit(transactions, 1)
    answer = transactions.answer(outcome)
    assert transactions.withdraw(outcome) is True
    assert answer.cancelled()
    await asyncio.sleep(0)
    assert connection.sent == []
    assert transactions.withdraw(outcome) is False


async def test_what_failed_fails_for_who_waits_and_for_nobody_else_in_the_log(
    connection: Answering, transactions: TransactionBatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise BackendError("refused", definite=True)

    monkeypatch.setattr(connection, "begin", lambda *_: False)
    monkeypatch.setattr(connection, "call", refuse, raising=False)
    waited_for, ignored = submit(transactions, 2)
    with pytest.raises(BackendError, match="refused") as failed:
        await transactions.answer(waited_for)
    assert failed.value.definite
    await asyncio.wait({ignored})
    assert isinstance(ignored.exception(), BackendError)


@pytest.mark.parametrize(
    ("status", "said", "definite"),
    [
        (_EXHAUSTED, "etcdserver: mvcc: database space exceeded", False),
        (_DENIED, "etcdserver: permission denied", True),
    ],
)
async def test_a_store_that_ran_full_may_have_done_what_it_refuses(
    status: int, said: str, definite: bool
) -> None:
    """etcd checks its quota before it proposes a transaction and again when it has applied it."""
    async with http2_server() as member:
        connection = EtcdConnection(parse(f"etcd://{member.address}", {}))
        calling = asyncio.create_task(connection.call(TXN, rpc.TxnRequest()))
        await member.accepted()
        member.settings()
        member.refuse((await member.request()).stream, status, said)
        with pytest.raises(BackendError, match=said) as refused:
            await calling
        assert refused.value.definite is definite
        await connection.aclose()
