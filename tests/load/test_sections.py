"""Sections under way: bounded by the connections, while contention stays unbounded."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import asyncdlock
from asyncdlock import LockClient
from harness.history import Row
from harness.load.clock import now
from harness.load.contender import Contenders
from harness.load.pacer import offsets, share
from harness.load.runner import Runner
from harness.load.sections import Sections
from harness.resource.client import ResourceClient

LONG = 2 << 30


def test_as_many_sections_begin_as_there_are_connections() -> None:
    sections = Sections(2)
    first = sections.ask("a", now())
    assert sections.room()
    second = sections.ask("b", now())
    assert not sections.room()
    sections.answered("a", first)
    assert sections.room()
    sections.writing += 1
    assert not sections.room()
    sections.answered("b", second)
    sections.writing -= 1
    assert sections.room()


def test_whoever_waits_for_a_key_in_play_takes_no_room() -> None:
    sections = Sections(2)
    asked = [sections.ask("hot", now()) for _ in range(1000)]
    assert sections.room()
    for ticket in asked:
        sections.answered("hot", ticket)
    assert sections.room()


def test_a_request_that_stays_open_takes_no_room_after_a_moment() -> None:
    """A dead holder's keys, or a server that is away, do not keep other keys from being asked for."""
    sections = Sections(2)
    past = now() - LONG
    asked = {key: sections.ask(key, past) for key in ("a", "b")}
    assert sections.room()
    third = sections.ask("c", now())
    for key, ticket in asked.items():
        sections.answered(key, ticket)
    assert sections.room(), "an answer that comes late is not counted twice"
    fourth = sections.ask("d", now())
    assert not sections.room()
    sections.answered("c", third)
    sections.answered("d", fourth)
    assert sections.room()


@pytest.fixture
async def client() -> AsyncIterator[LockClient]:
    async with asyncdlock.connect("memory://") as locks:
        yield locks


async def test_no_lock_is_held_by_a_contender_that_waits_for_a_connection(client: LockClient) -> None:
    """A resource that takes two writes at a time, fifty arrivals for fifty keys: two locks are held."""
    answer = asyncio.Event()
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            asked += 1
            await answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    rows: list[Row] = []
    waits: list[int] = []
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with ResourceClient(url, connections=2) as writer:
            sections = Sections(writer.connections)
            start = now()
            contenders = Contenders(
                client,
                writer,
                rows.append,
                start=start,
                key_of=lambda number: f"k{number}",
                ttl=60.0,
                sections=sections,
                observe_connection=waits.append,
            )
            runner = Runner(contenders.serve, contenders.give_up, contenders=50, room=sections.room)
            contenders.arrivals = runner
            await runner.run(share(offsets(1e6, 50e-6), 0, 1), start=start)
            async with asyncio.timeout(30):
                while asked < 2:
                    await asyncio.sleep(0.001)
            assert runner.offered == 50
            held = 0
            for number in range(50):
                handle = await client.try_acquire(f"k{number}")
                held += handle is None
                if handle is not None:
                    await handle.release()
            assert held == 2, "the others wait before they ask"
            answer.set()
            await runner.drain(30)
    assert {row.outcome for row in rows} == {"ok"}
    assert len(rows) == 50
    assert len(waits) == 2, "the two that had to be opened; nobody waited for another's"
