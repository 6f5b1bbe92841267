"""The processes of experiment 13: one whose function enters its lock again, and one beside it.

Both do the same with either lock: read under the fence, and write what was read and their own name. The
resource is spoken to by a client that blocks. A lost lease cancels what *awaits*; a write that was handed
to a thread, a driver or the network is beyond its reach, and so is one that blocks.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http.client import HTTPConnection
from typing import Any, Literal, Protocol
from urllib.parse import quote, urlsplit

import uvloop
from redis.asyncio import Redis

import asyncdlock
from asyncdlock import LockLost, ReentrantLock
from harness.experiments.reentrancy.recipe import CountedLock
from harness.lab.actor import warm
from harness.lab.forkserver import Channel

Kind = Literal["count on the server", "ReentrantLock"]
Stop = Literal["before the re-entry", "after the re-entry", "after the inner block"]


class EnteredLock(Protocol):
    """What both locks return when they are entered."""

    @property
    def owner(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def held(self) -> bool: ...


Lock = AbstractAsyncContextManager[EnteredLock, None]
Turn = Callable[[Mapping[str, Any], Channel, Lock, "BlockingResource"], Awaitable[None]]


class BlockingResource:
    """Reads and writes one value of the resource, and says so."""

    def __init__(self, spec: Mapping[str, Any], channel: Channel) -> None:
        self._name: str = spec["name"]
        self._path = f"/r/{quote(spec['key'], safe='')}"
        self._connection = HTTPConnection(urlsplit(spec["resource"]).netloc, timeout=30.0)
        self._channel = channel

    def read(self, holding: EnteredLock) -> list[str]:
        """The names in the value, read under the fence: a later holder's mark is never passed unnoticed.

        :raises OSError: the resource does not answer.
        """
        status, body = self._ask("GET", {"X-Fence-Token": str(holding.fence)})
        return [] if status == 404 else body.decode().split(" ")

    def write(self, found: list[str], holding: EnteredLock) -> None:
        """Add our name to what was found.

        :raises OSError: the resource does not answer.
        """
        body = " ".join([*found, self._name])
        self._channel.say("writing", fence=holding.fence, held=holding.held, body=body)
        headers = {"X-Fence-Token": str(holding.fence), "X-Fence-Owner": holding.owner}
        status, answer = self._ask("PUT", headers, body.encode())
        if status == 200:
            self._channel.say("accepted", fence=holding.fence)
        else:
            self._channel.say("stale", fence=holding.fence, seen=json.loads(answer)["seen"])

    def _ask(self, verb: str, headers: Mapping[str, str], body: bytes | None = None) -> tuple[int, bytes]:
        self._connection.request(verb, self._path, body, dict(headers))
        reply = self._connection.getresponse()
        return reply.status, reply.read()


def nesting(spec: Mapping[str, Any], channel: Channel) -> None:
    """Enters, enters again inside, and writes; stops at `spec["stop"]` until it is told to go on."""
    uvloop.run(_live(spec, channel, _nesting))


def plain(spec: Mapping[str, Any], channel: Channel) -> None:
    """Enters once, writes and leaves."""
    uvloop.run(_live(spec, channel, _plain))


async def _live(spec: Mapping[str, Any], channel: Channel, turn: Turn) -> None:
    async with _LOCKS[spec["lock"]](spec) as lock:
        channel.say("ready")
        if channel.hear() is None:
            return
        try:
            await turn(spec, channel, lock, BlockingResource(spec, channel))
        except LockLost as error:
            channel.say("lost", error=str(error))
            channel.say("released", owned=False)
        else:
            channel.say("released", owned=lock.owned if isinstance(lock, CountedLock) else True)


async def _nesting(spec: Mapping[str, Any], channel: Channel, lock: Lock, resource: BlockingResource) -> None:
    stop: Stop = spec["stop"]
    channel.say("acquiring")
    async with lock as outer:
        channel.say("granted", fence=outer.fence, owner=outer.owner)
        found = resource.read(outer)
        if stop == "before the re-entry":
            _stand_still(channel)
        channel.say("re-entering")
        async with lock as inner:
            channel.say("re-entered", fence=inner.fence, owner=inner.owner)
            if stop == "after the re-entry":
                _stand_still(channel)
            if spec["writes"] == "inside":
                resource.write(found, inner)
        channel.say("left")
        # The event loop goes on here, and with it whatever renews the lease.
        await asyncio.to_thread(channel.hear)
        if spec["writes"] == "outside":
            resource.write(found, outer)


async def _plain(spec: Mapping[str, Any], channel: Channel, lock: Lock, resource: BlockingResource) -> None:
    channel.say("acquiring")
    async with lock as holding:
        channel.say("granted", fence=holding.fence, owner=holding.owner)
        resource.write(resource.read(holding), holding)


def _stand_still(channel: Channel) -> None:
    """Event loop and all, until it was stopped, continued, and told to go on."""
    channel.say("stopping")
    channel.hear()


@asynccontextmanager
async def _recipe(spec: Mapping[str, Any]) -> AsyncIterator[Lock]:
    async with Redis.from_url(spec["url"]) as redis:
        await redis.ping()
        yield CountedLock(redis, spec["key"], ttl=spec["ttl"])


@asynccontextmanager
async def _ours(spec: Mapping[str, Any]) -> AsyncIterator[Lock]:
    async with asyncdlock.connect(spec["url"]) as client:
        await warm(client, spec["key"])
        yield ReentrantLock(client, spec["key"], ttl=spec["ttl"])


_LOCKS = {"count on the server": _recipe, "ReentrantLock": _ours}
