"""What the tests of redis-queue:// share: conditions to wait for, and looks at the server's own state."""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncdlock
from asyncdlock import LockClient
from asyncdlock.backends.redis.queue import QueueBackend
from harness.servers import RedisNode

PATIENT = 60.0
"""Seconds that a condition may take on a loaded machine before the test fails."""


STRANGER = uuid.UUID(int=7).hex
"""Who holds a lock without an end, as redis-py's `Lock` would without a `timeout`."""


def queue_url(node: RedisNode) -> str:
    return node.url.replace("redis://", "redis-queue://", 1)


def fifo(node: RedisNode, **options: Any) -> LockClient:
    """A client with a place in Redis's queue for each of its waiters."""
    return asyncdlock.connect(queue_url(node), **{"local_handoffs": 0, **options})


def backend_of(client: LockClient) -> QueueBackend:
    """The queue behind a client made by `fifo`."""
    backend = client._backend
    assert isinstance(backend, QueueBackend)
    return backend


async def eventually(
    condition: Callable[[], Awaitable[bool]], what: str | Callable[[], str], within: float = PATIENT
) -> None:
    """Wait until the condition holds; `what` names it should it not."""
    deadline = time.monotonic() + within
    while not await condition():
        wanted = what if isinstance(what, str) else what()
        assert time.monotonic() < deadline, f"not within {within:g} s: {wanted}"
        await asyncio.sleep(0.005)


async def waiting(node: RedisNode, key: str) -> list[str]:
    """The owners in Redis's queue, in order."""
    members = await node.command("ZRANGE", f"queue:{{{key}}}", 0, -1)
    return [member.split(" ")[0] for member in members]


async def until_waiting(node: RedisNode, key: str, count: int) -> list[str]:
    """Wait until exactly `count` owners queue for `key`, and return them in order."""

    async def complete() -> bool:
        return bool(await node.command("ZCARD", f"queue:{{{key}}}") == count)

    await eventually(complete, f"{count} waiters in the queue of {key!r}")
    return await waiting(node, key)


async def until_clean(node: RedisNode, *, but: tuple[str, ...] = ()) -> None:
    """Wait until the server stores nothing except fence counters, what clients tell, and the keys in `but`.

    For less than the time after which an abandoned queue ends by itself.
    """
    left: list[str] = []

    async def clean() -> bool:
        left[:] = [
            key for key in await node.command("KEYS", "*") if not key.startswith(("fence:", "client:"))
        ]
        return set(left) <= set(but)

    await eventually(clean, lambda: f"nothing left on the server, there is {left}", within=PATIENT / 2)


async def wires(node: RedisNode) -> int:
    """How many connections the server has besides the one that asks."""
    listing: str = await node.command("CLIENT", "LIST")
    return sum("cmd=client" not in line for line in listing.splitlines())


async def disconnect_everybody(node: RedisNode) -> None:
    """Let the server close every connection but the one that asks for it."""
    await node.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await node.command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")


@asynccontextmanager
async def waiters(
    client: LockClient, key: str, count: int, **options: Any
) -> AsyncIterator[list["asyncio.Task[asyncdlock.Handle]"]]:
    """Tasks that acquire `key`; those that still wait at the end are cancelled."""
    tasks = [asyncio.create_task(client.acquire(key, **options)) for _ in range(count)]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def first_look_is_over(client: LockClient, holder: asyncdlock.Handle) -> None:
    """Who waits for a holder that will tell looks once, and then as rarely as its patience allows."""
    backend = holder._holding.core.backend
    assert isinstance(backend, QueueBackend)
    await backend._messages.listen(holder._holding.grant.claim)

    async def over() -> bool:
        timer = backend_of(client)._lists["k"].timer
        return timer is not None and timer.when() - asyncio.get_running_loop().time() > PATIENT

    await eventually(over, "the first look at the queue")


async def hold_in_turn(tasks: "Sequence[asyncio.Task[asyncdlock.Handle]]") -> list[asyncdlock.Handle]:
    """Let each waiter have the lock and give it back; the handles in order of their grants."""
    handles: list[asyncdlock.Handle] = []

    async def turn(task: "asyncio.Task[asyncdlock.Handle]") -> None:
        handle = await task
        handles.append(handle)
        await handle.release()

    await asyncio.wait_for(asyncio.gather(*map(turn, tasks)), PATIENT)
    return handles


class QueueLog:
    """What the server did to the queue of one key, in its own order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        """`joined` and `granted`, with the owner."""

    @property
    def granted(self) -> list[str]:
        return [owner for event, owner in self.events if event == "granted"]


@asynccontextmanager
async def queue_log(node: RedisNode, key: str) -> AsyncIterator[QueueLog]:
    """Record, by MONITOR, who joins the queue of `key` and who is granted the lock."""
    log = QueueLog()
    joined = re.compile(rf'"ZADD" "{re.escape(f"queue:{{{key}}}")}" "\d+" "(\S+) ')
    granted = re.compile(rf'"SET" "{re.escape(key)}" "(\S+)" "PX"')
    reader, writer = await asyncio.open_connection(node.host, node.port)
    writer.write(b"MONITOR\r\n")
    assert (await reader.readline()).startswith(b"+OK")

    async def read() -> None:
        async for line in reader:
            text = line.decode(errors="replace")
            if "queue log ends" in text:
                return
            for event, pattern in (("joined", joined), ("granted", granted)):
                if match := pattern.search(text):
                    log.events.append((event, match[1]))

    reading = asyncio.create_task(read())
    try:
        yield log
    finally:
        await node.command("ECHO", "queue log ends")
        await asyncio.wait_for(reading, PATIENT)
        writer.close()
        await writer.wait_closed()
