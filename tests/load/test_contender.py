"""One contender's life: whatever happens is an outcome in its row, never an exception."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import asyncdlock
from asyncdlock import BackendUnavailable, LockClient
from harness.history import Row
from harness.load.clock import now
from harness.load.contender import Contenders
from harness.load.pacer import NANOSECONDS
from harness.resource.client import NotSent, Reply
from harness.resource.reply import Meaning


class Notebook:
    """A resource that writes down who wrote, and answers as it is told."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.written: list[tuple[str, int, str, bytes]] = []
        self.before_reply: Any = None
        self.no_connection = False

    def take(self) -> Any:
        return None if self.no_connection else object()

    async def connect(self) -> Any:
        raise NotSent("no connection to the resource: refused")

    async def put(self, key: str, body: bytes, *, fence: int, owner: str, on: Any) -> Reply:
        self.written.append((key, fence, owner, body))
        if self.before_reply is not None:
            await self.before_reply()
        return self.replies.pop(0) if self.replies else Reply(200)


@pytest.fixture
async def client() -> AsyncIterator[LockClient]:
    async with asyncdlock.connect("memory://") as locks:
        yield locks


def contenders(client: LockClient, notebook: Notebook, rows: list[Row], **changes: Any) -> Contenders:
    settings: dict[str, Any] = {"start": now(), "key_of": lambda number: "k", "ttl": 5.0, **changes}
    return Contenders(client, notebook, rows.append, **settings)


async def test_a_life_without_trouble_fills_its_row_in_order(client: LockClient) -> None:
    rows: list[Row] = []
    notebook = Notebook()
    await contenders(client, notebook, rows, work=0.003, process=4).serve(7, 12, 5)
    (row,) = rows
    assert (row.id, row.process, row.contender, row.key, row.intended) == (12, 4, 7, "k", 5)
    assert (row.outcome, row.write, row.paused, row.error, row.seen) == ("ok", "accepted", False, None, None)
    times = [
        row.intended,
        row.dispatched,
        row.called,
        row.granted,
        row.write_sent,
        row.write_done,
        row.released,
    ]
    assert None not in times
    assert times == sorted(times, key=lambda time: time or 0)
    assert notebook.written == [("k", row.fence, row.owner, f"12 {row.owner}".encode())]
    again = await client.try_acquire("k")
    assert again is not None, "it gave the lock back"
    assert again.fence > (row.fence or 0)


async def test_patience_counts_from_when_the_arrival_was_due(client: LockClient) -> None:
    """An arrival that spent its patience in the backlog does not get another in the lock's queue."""
    await client.acquire("k")
    rows: list[Row] = []
    fleet = contenders(client, Notebook(), rows, timeout=30.0, start=now() - 30 * NANOSECONDS)
    async with asyncio.timeout(10):
        await fleet.serve(0, 0, 0)
    assert rows[0].outcome == "timed_out"
    assert rows[0].granted is None
    assert fleet.waiting == 0


async def test_without_patience_left_nothing_is_sent(client: LockClient) -> None:
    """A generator that is late gives up for its arrival, also when the lock is free."""
    rows: list[Row] = []
    notebook = Notebook()
    before = await client.acquire("k")
    await before.release()
    fleet = contenders(client, notebook, rows, timeout=30.0, start=now() - 31 * NANOSECONDS)
    await fleet.serve(0, 0, 0)
    assert (rows[0].outcome, rows[0].called, rows[0].granted) == ("timed_out", None, None)
    assert notebook.written == []
    handle = await client.try_acquire("k")
    assert handle is not None
    assert handle.fence == before.fence + 1, "nobody asked for the lock in between"


async def test_without_a_connection_the_write_failed_and_was_never_sent(client: LockClient) -> None:
    rows: list[Row] = []
    notebook = Notebook()
    notebook.no_connection = True
    await contenders(client, notebook, rows).serve(0, 0, 0)
    assert (rows[0].outcome, rows[0].write, rows[0].write_sent) == ("failed", "failed", None)
    assert "refused" in (rows[0].error or "")
    assert notebook.written == []
    assert rows[0].released is not None


async def test_each_step_of_a_contender_admits_what_is_due(client: LockClient) -> None:
    """Before it asks, when it is granted, and when its write is answered."""

    class Due:
        due = 0
        asked = 0

        def admit(self) -> None:
            self.asked += 1

    rows: list[Row] = []
    fleet = contenders(client, Notebook(), rows)
    fleet.arrivals = due = Due()
    await fleet.serve(0, 0, 0)
    assert due.asked == 3


async def test_a_stale_write_is_recorded_with_what_the_resource_has_seen(client: LockClient) -> None:
    rows: list[Row] = []
    await contenders(client, Notebook(Reply(409, b'{"seen":99}')), rows).serve(0, 0, 0)
    assert (rows[0].outcome, rows[0].write, rows[0].seen) == ("stale", "stale", 99)
    assert rows[0].write_done is not None


@pytest.mark.parametrize("write", ["unknown", "failed"])
async def test_a_write_without_a_good_reply_is_a_failed_arrival(client: LockClient, write: Any) -> None:
    """Its end stays open: nobody knows when, or whether, it took effect."""
    rows: list[Row] = []
    await contenders(client, Notebook(Reply(0, missing=Meaning(write, error="gone"))), rows).serve(0, 0, 0)
    assert (rows[0].outcome, rows[0].write, rows[0].error) == ("failed", write, "gone")
    assert rows[0].write_done is None
    assert rows[0].released is not None


async def test_the_first_and_every_nth_arrival_is_frozen_and_still_writes(client: LockClient) -> None:
    """Frozen past its TTL a holder is displaced, and writes nevertheless, convinced as it is."""
    rows: list[Row] = []
    notebook = Notebook()
    fleet = contenders(client, notebook, rows, ttl=0.05, pause=0.5, pause_period=3)
    async with asyncio.timeout(30):
        await asyncio.gather(*(fleet.serve(number, number, 0) for number in range(4)))
    by_number = {row.id: row for row in rows}
    assert [by_number[number].paused for number in range(4)] == [True, False, False, True]
    assert len(notebook.written) == 4
    frozen = by_number[0]
    assert frozen.write_sent is not None
    assert frozen.outcome == "lost", "accepted by this careless resource, but the lease was gone"
    successor = by_number[1]
    assert successor.granted is not None
    assert successor.granted < frozen.write_sent
    assert (successor.fence or 0) > (frozen.fence or 0)


async def test_a_holder_that_notices_the_loss_does_not_write(client: LockClient) -> None:
    """Nobody froze it, its event loop stood still: it checks its lease before it writes."""
    rows: list[Row] = []
    notebook = Notebook()
    fleet = contenders(client, notebook, rows, ttl=0.2, work=0.05)
    serving = asyncio.ensure_future(fleet.serve(0, 1, 0))
    while not list(client._core.watchdog.watched()):
        await asyncio.sleep(0)
    until = now() + NANOSECONDS // 2
    while now() < until:
        pass
    await serving
    assert (rows[0].outcome, rows[0].write) == ("lost", "none")
    assert notebook.written == []
    assert "lost" in (rows[0].error or "")


async def test_a_failing_lock_server_is_an_outcome(
    client: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise BackendUnavailable("the server\nis away", definite=True)

    monkeypatch.setattr(client._backend, "acquire", broken)
    rows: list[Row] = []
    await contenders(client, Notebook(), rows).serve(0, 0, 0)
    assert rows[0].outcome == "failed"
    assert rows[0].error == "BackendUnavailable: the server is away"


async def test_a_cancelled_write_stays_open(client: LockClient) -> None:
    """The run ended first: abandoned, and the write may have happened."""
    reached = asyncio.Event()
    notebook = Notebook()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    notebook.before_reply = hang
    rows: list[Row] = []
    serving = asyncio.ensure_future(contenders(client, notebook, rows).serve(0, 0, 0))
    await asyncio.wait_for(reached.wait(), 30)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (rows[0].outcome, rows[0].write, rows[0].write_done) == ("abandoned", "unknown", None)


async def test_a_cancelled_wait_is_abandoned_and_leaves_the_queue(client: LockClient) -> None:
    held = await client.acquire("k")
    rows: list[Row] = []
    fleet = contenders(client, Notebook(), rows)
    serving = asyncio.ensure_future(fleet.serve(0, 0, 0))
    while not fleet.waiting:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (rows[0].outcome, rows[0].write, rows[0].granted) == ("abandoned", "none", None)
    assert await held.release()
    assert await client.try_acquire("k") is not None


async def test_an_arrival_that_nobody_took_has_a_row_too(client: LockClient) -> None:
    rows: list[Row] = []
    contenders(client, Notebook(), rows).give_up(3, 17, "timed_out")
    (row,) = rows
    assert (row.id, row.contender, row.intended, row.outcome, row.dispatched) == (
        3,
        -1,
        17,
        "timed_out",
        None,
    )
