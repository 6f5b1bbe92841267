"""One holder that reads, waits and writes, under whatever its resource compares."""

import asyncio

from asyncdlock import LockClient, StaleFence
from harness.experiments.lab import Actor, Track
from harness.experiments.trials.shared_set import CONFLICT, SharedSet, Snapshot
from harness.faults import FaultJournal


class Holder:
    """Takes the lock, adds an element to the set and leaves; each step can be taken by itself."""

    def __init__(
        self, track: Track, journal: FaultJournal, client: LockClient, shared: SharedSet, *, ttl: float
    ) -> None:
        self.track = track
        self.acknowledged: list[str] = []
        self.refused = 0
        """Reads and writes that were too late by their fence."""
        self.conflicts = 0
        """Writes that found another version than they had read."""
        self._actor = Actor(track, journal, client, None)
        self._shared = shared
        self._ttl = ttl
        self._found: Snapshot | None = None

    @property
    def fence(self) -> int:
        assert self._actor.handle is not None
        return self._actor.handle.fence

    async def acquire(self) -> None:
        """Wait for the lock, with a lease that nobody renews: a pause is to be a pause.

        :raises LockError: the lock server failed.
        """
        await self._actor.acquire(ttl=self._ttl)

    async def read(self) -> bool:
        """False: refused, because a later holder has been here."""
        self._actor.note("reading", fence=self.fence)
        try:
            self._found = await self._shared.read(self.track.key, self.fence)
        except StaleFence as stale:
            self.refused += 1
            self._actor.note("refused", seen=stale.seen, fence=self.fence)
            return False
        return True

    async def write(self, element: str) -> None:
        """Add to what was read, as often as the value has changed meanwhile: that is check-and-set."""
        assert self._actor.handle is not None
        while True:
            assert self._found is not None
            self._actor.note("writing", fence=self.fence, held=self._actor.handle.held)
            reply = await self._shared.write(
                self.track.key, self._found, element, fence=self.fence, owner=self._actor.handle.owner
            )
            if reply.error != CONFLICT:
                break
            self.conflicts += 1
            self._found = await self._shared.read(self.track.key)
        self._actor.note(reply.write, fence=self.fence, seen=reply.seen, error=reply.error)
        if reply.write == "accepted":
            self.acknowledged.append(element)
        elif reply.write == "stale":
            self.refused += 1

    async def release(self) -> None:
        """:raises LockError: the lock server failed."""
        await self._actor.release()

    async def update(self, element: str, wait: float) -> None:
        """All of it, with a wait between read and write.

        :raises LockError: the lock server failed.
        """
        await self.acquire()
        if await self.read():
            await asyncio.sleep(wait)
            await self.write(element)
        await self.release()
