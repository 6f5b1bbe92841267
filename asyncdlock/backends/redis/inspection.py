"""Inspection: who holds a lock in Redis, who waits for it, which locks there are, and taking one back."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from asyncdlock.backends.redis import client_record
from asyncdlock.backends.redis.base import RedisBackend
from asyncdlock.backends.redis.client_record import OwnerRecord, Recorded, session_of
from asyncdlock.backends.redis.keys import companion, fence_key, key_of_stem, lock_name
from asyncdlock.backends.redis.queue_server import QueueServer
from asyncdlock.backends.redis.replies import OutcomeUnknown
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redis.wire import Wire
from asyncdlock.errors import BackendError
from asyncdlock.types import Claim, LockInfo, Waiter, owners

INSPECT = Script("inspect.lua")
SHARED = b"asyncdlock:shared"
"""What a lock's key holds that several hold beside each other: see shared.lua."""

_NOBODY = OwnerRecord()
_RECORD_WITHIN = 2.0  # seconds
_SCAN = 1000  # keys that the server looks at in one step


class Seen(NamedTuple):
    """The reply of the script."""

    holder: str
    """Empty: the lock is free."""
    pttl: int
    last_fence: int
    server_ms: int
    beside: list[str]
    """The owners who hold it beside each other, if it is such a lock."""
    waiters: list[str]
    """Their owners, in order."""

    @classmethod
    def parse(cls, reply: Sequence[Any]) -> "Seen":
        holder, pttl, fence, now, holders, members = reply
        beside = [owner.decode() for owner in holders] if holder == SHARED else []
        waiting = [member.decode().partition(" ")[0] for member in members]
        return cls(holder.decode(errors="replace"), pttl, int(fence), now, beside, waiting)

    def info(self, key: str, told: dict[str, OwnerRecord]) -> LockInfo:
        """With what the clients tell of their owners."""
        waiters = tuple(Waiter(owner=owner, label=told.get(owner, _NOBODY).label) for owner in self.waiters)
        if not self.holder:
            return LockInfo(key=key, held=False, waiters=waiters)
        left = self.pttl / 1000 if self.pttl >= 0 else None
        if self.beside:
            first, *others = [Waiter(owner=one, label=told.get(one, _NOBODY).label) for one in self.beside]
            return LockInfo(
                key=key,
                held=True,
                owner=first.owner,
                label=first.label,
                lease_left=left,
                beside=tuple(others),
                waiters=waiters,
            )
        holder = told.get(self.holder, _NOBODY)
        since = holder.since
        if since is None and holder.ttl is not None and left is not None:
            since = self.server_ms / 1000 - (holder.ttl - left)
        fence = holder.fence
        if fence is None and holder.fences is not None:
            fence = self.last_fence - holder.fences + 1
        return LockInfo(
            key=key,
            held=True,
            owner=self.holder,
            label=holder.label,
            since=since,
            lease_left=left,
            fence=fence,
            last_fence=None if fence is None or holder.fences is None else fence + holder.fences - 1,
            waiters=waiters,
        )


def inspect_request(key: str) -> bytes:
    names = lock_name(key), fence_key(key), companion("queue", key), companion("holders", key)
    return INSPECT.request(4, *names)


def by_session(found: Iterable[str]) -> dict[str, list[str]]:
    """Our owners among those found, by the client that they belong to."""
    sessions: dict[str, list[str]] = {}
    for owner in found:
        session = session_of(owner)
        if session is not None:
            sessions.setdefault(session, []).append(owner)
    return sessions


class InspectedRedis(Recorded, RedisBackend):
    """A backend on one server or cluster whose locks can be seen and taken back."""

    _queue: QueueServer

    async def inspect(self, key: str) -> LockInfo:
        seen = Seen.parse(await self._server.run(INSPECT, key, inspect_request(key)))
        sessions = by_session((seen.holder, *seen.beside, *seen.waiters))
        told: dict[str, OwnerRecord] = {}
        for found in await asyncio.gather(*(self._told(*one) for one in sessions.items())):
            told |= found
        return seen.info(key, told)

    async def _told(self, session: str, of: list[str]) -> dict[str, OwnerRecord]:
        # For display, and perhaps on another shard than the lock: one that is silent hides labels alone.
        request = client_record.read_request(session, of)
        with contextlib.suppress(BackendError, TimeoutError):
            async with asyncio.timeout(_RECORD_WITHIN):
                return client_record.parse(of, await self._server.run(client_record.READ, session, request))
        return {}

    async def force_release(self, key: str, above: int) -> bool:
        # From the holder of this moment: sent again after a lost reply, it must not meet the next one.
        holder = Seen.parse(await self._server.run(INSPECT, key, inspect_request(key))).holder
        # Of our own session, so that the reply tells of a grant to another waiter of ours.
        owner = f"{self._record.session}-{0:012x}" if self._record.session else next(owners())
        sent = time.monotonic()
        try:
            reply = await self._queue.force_release(Claim(key, owner, 1.0), holder, above)
        except OutcomeUnknown:
            reply = 1  # by the first try, or by itself: it does not hold the lock any more
        if type(reply) is list:
            self._passed_on(key, reply, sent)
        return bool(reply and holder)

    def _passed_on(self, key: str, reply: list[Any], sent: float) -> None:
        """The lock went to a waiter of our own session."""

    async def keys(self, start: str) -> AsyncIterator[str]:
        """Found by their fence counters: a lock that only other programs have ever taken is not listed."""
        for node in await self._server.nodes():
            async for key in live_keys(node.wire, start):
                yield key


async def live_keys(wire: Wire, start: str) -> AsyncIterator[str]:
    """Of one server, the locks that are held or waited for and begin with `start`."""
    cursor: Any = 0
    seen: set[str] = set()  # a scan may come upon a key twice
    while True:
        cursor, names = await wire.call("SCAN", cursor, "MATCH", "fence:*", "COUNT", _SCAN)
        stems = [name.decode(errors="replace").removeprefix("fence:") for name in names]
        keys = [
            key for key in dict.fromkeys(map(key_of_stem, stems)) if key.startswith(start) and key not in seen
        ]
        seen.update(keys)
        looks = [wire.call("EXISTS", lock_name(key), companion("queue", key)) for key in keys]
        for key, look in zip(keys, looks, strict=True):
            if await look:
                yield key
        if int(cursor) == 0:
            return
