"""Inspection: whom a majority of the nodes believes to hold a lock, and which locks there are."""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from asyncdlock.backends.redis import client_record
from asyncdlock.backends.redis.client_record import OwnerRecord, Recorded, session_of
from asyncdlock.backends.redis.inspection import INSPECT, Seen, inspect_request, live_keys
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redlock.member import Member
from asyncdlock.errors import BackendError, QuorumError
from asyncdlock.types import LockInfo


class Everywhere:
    """Brings a client's record to every node that can be reached."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members

    def send(self, script: Script, key: str, request: bytes) -> Awaitable[Any]:
        return asyncio.gather(*_sent(self._members, script, request), return_exceptions=True)

    async def run_again(self, error: BackendError, script: Script, key: str, request: bytes) -> Any:
        raise error


class InspectedRedlock(Recorded, ABC):
    """The operator's part of the backend."""

    _members: Sequence[Member]
    _node_timeout: float
    _quorum: int

    async def inspect(self, key: str) -> LockInfo:
        """As the protocol says; a fence is known once its lock was renewed, and waiters leave no trace."""
        seen = await self._seen(key)
        holder = self._holder(seen)
        if not holder:
            return LockInfo(key=key, held=False)
        # What a majority still grants when the others have let go.
        leases = sorted((one.pttl / 1000 for one in seen if one.holder == holder), reverse=True)
        left = leases[self._quorum - 1]
        told = await self._told(holder)
        since = told.since
        if since is None and told.ttl is not None:
            since = time.time() - (told.ttl - left)
        return LockInfo(
            key=key,
            held=True,
            owner=holder,
            label=told.label,
            since=since,
            lease_left=left,
            fence=told.fence,
            last_fence=told.fence,
        )

    @abstractmethod
    async def _connect(self, ttl: float) -> None: ...

    async def keys(self, start: str) -> AsyncIterator[str]:
        """Every lock that any of the nodes knows of: some may be leftovers that no majority holds.

        :raises QuorumError: so few nodes could be asked that a lock may be known to none of them.
        """
        await self._connect(math.inf)
        known: set[str] = set()
        asked = 0
        for member in self._members:
            if not member.is_open:
                continue
            try:
                async for key in live_keys(member.wire, start):
                    if key not in known:
                        known.add(key)
                        yield key
            except BackendError:
                continue
            asked += 1
        if asked + self._quorum <= len(self._members):
            raise QuorumError(f"{asked} of {len(self._members)} nodes answered: there may be more locks")

    async def _seen(self, key: str) -> list[Seen]:
        """What a majority says, or more."""
        await self._connect(math.inf)
        seen = [Seen.parse(reply) for reply in await self._answers(INSPECT, inspect_request(key))]
        if len(seen) < self._quorum:
            raise QuorumError(f"no majority of {len(self._members)} Redis nodes answered")
        return seen

    def _holder(self, seen: Sequence[Seen]) -> str:
        """Whom a majority names; empty: nobody."""
        holder, votes = Counter(one.holder for one in seen).most_common(1)[0]
        return holder if votes >= self._quorum else ""

    async def _told(self, owner: str) -> OwnerRecord:
        session = session_of(owner)
        if session is not None:
            request = client_record.read_request(session, [owner])
            for reply in await self._answers(client_record.READ, request):
                told = client_record.parse([owner], reply)[owner]
                if told.label is not None:
                    return told
        return OwnerRecord()

    async def _answers(self, script: Script, request: bytes) -> list[Any]:
        sent = _sent(self._members, script, request)
        if sent:
            await asyncio.wait(sent, timeout=self._node_timeout)
        return [
            one.result() for one in sent if one.done() and not one.cancelled() and one.exception() is None
        ]


def _sent(members: Sequence[Member], script: Script, request: bytes) -> "list[asyncio.Future[Any]]":
    """The request with the script's text, to every node that is not down."""
    sent = []
    for member in members:
        try:
            sent.append(member.send(script.in_full(request)))
        except BackendError:
            continue
    return sent
