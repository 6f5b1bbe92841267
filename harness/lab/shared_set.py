"""A set kept in one value of the resource, added to by read, wait and write: the test that loses updates.

Each holder adds an element of its own. An element whose write was acknowledged and that is not in the
set at the end is a lost update, whatever the resource's log looks like.
"""

import json
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, Protocol

from asyncdlock import LockClient, StaleFence
from harness.lab.actor import Actor
from harness.lab.event import Say
from harness.lab.resource_view import Stored
from harness.resource.client import Reply, Unanswered
from harness.resource.process import Fence

Mode = Literal["none", "writes only", "every operation", "check-and-set"]
"""What the resource compares: nothing, the fences of writes, those of reads as well, or versions."""

RESOURCE_FENCE: Mapping[Mode, Fence] = {
    "none": "off",
    "writes only": "writes",
    "every operation": "on",
    "check-and-set": "off",
}
"""How the resource must have been started for each mode."""


class Elements(NamedTuple):
    """What a read found."""

    names: tuple[str, ...]
    stored: Stored


class SetStore(Protocol):
    """What a set is kept in: the resource, or a store behind a guard."""

    async def get(self, key: str, fence: int | None = None) -> Stored: ...
    async def put(
        self, key: str, body: bytes, *, fence: int | None, owner: str | None, found: Stored | None = None
    ) -> Reply: ...


class SharedSet:
    """The sets of one resource, for holders of one mode."""

    def __init__(self, resource: SetStore, mode: Mode) -> None:
        self._resource = resource
        self._mode = mode

    async def read(self, key: str, fence: int | None = None) -> Elements:
        """The set, read under `fence`; without one by somebody who holds nothing and only looks.

        :raises StaleFence: the resource has seen a later holder.
        :raises Unanswered: no reply.
        """
        # Modes that fence less than everything are told apart by the resource; the token is sent anyway.
        stored = await self._resource.get(key, fence)
        return Elements(tuple(json.loads(stored.body or b"[]")), stored)

    async def write(self, key: str, found: Elements, element: str, *, fence: int, owner: str) -> Reply:
        """Store what was found and one more element. A failure is a `Reply`, never an exception.

        With a `conflict` nothing was stored: read again.
        """
        body = json.dumps([*found.names, element]).encode()
        only_if = found.stored if self._mode == "check-and-set" else None
        return await self._resource.put(key, body, fence=fence, owner=owner, found=only_if)

    async def lost(self, key: str, acknowledged: Collection[str]) -> list[str]:
        """The updates that were acknowledged and are not there.

        :raises Unanswered: no reply.
        """
        return sorted(set(acknowledged) - set((await self.read(key)).names))


class SetHolder(Actor):
    """Takes the lock, reads the set, adds an element and leaves; never looks at its lease meanwhile."""

    def __init__(self, key: str, client: LockClient, shared: SharedSet, say: Say) -> None:
        super().__init__(key, client, None, say)
        self.acknowledged: list[str] = []
        self.refused = 0
        """Reads and writes that were too late by their fence."""
        self.conflicts = 0
        """Writes that found another version than they had read."""
        self._shared = shared
        self._found: Elements | None = None

    async def read(self) -> bool:
        """False: a later holder has been here, or there was no answer."""
        fence = self.handle.fence
        self.say("reading", fence=fence)
        try:
            self._found = await self._shared.read(self.key, fence)
        except StaleFence as stale:
            self.refused += 1
            self.say("refused", seen=stale.seen, fence=fence)
            return False
        except Unanswered as error:
            self.say("failed", error=f"the read came to nothing: {error}")
            return False
        return True

    async def add(self, element: str) -> None:
        """Add to what was read, as often as the value has changed meanwhile: that is check-and-set.

        :raises Unanswered: it cannot be read again.
        """
        handle = self.handle
        while True:
            assert self._found is not None
            self.say("writing", fence=handle.fence, held=handle.held)
            reply = await self._shared.write(
                self.key, self._found, element, fence=handle.fence, owner=handle.owner
            )
            if not reply.conflict:
                break
            self.conflicts += 1
            self._found = await self._shared.read(self.key)
        self.say(reply.write, element=element, fence=handle.fence, seen=reply.seen, error=reply.error)
        if reply.write == "accepted":
            self.acknowledged.append(element)
        self.refused += reply.write == "stale"
