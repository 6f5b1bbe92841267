"""A client in this process that is told each step, for schedules that need no process of its own."""

import asyncio
import contextlib
import time
from typing import Any

from asyncdlock import AcquireTimeout, LockClient, LockError
from asyncdlock.handle import Handle
from harness.clock import now
from harness.experiments.lab.track import PATIENCE, Event, Track
from harness.faults import FaultJournal
from harness.writer import FencedWriter


class Actor:
    """Acquires, writes and releases when told, and notes it in a track as a worker process would."""

    def __init__(
        self, track: Track, journal: FaultJournal, client: LockClient, writer: FencedWriter | None
    ) -> None:
        self.track = track
        self.client = client
        self.handle: Handle | None = None
        self._journal = journal
        self._writer = writer

    async def warm(self) -> None:
        """Open the connections now, so that the schedule does not have to wait for them.

        :raises TimeoutError: the servers do not answer.
        """
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(LockError):  # a first connection may take longer than one try may
                    handle = await self.client.acquire(f"{self.track.key}/{self.track.name}", renew=False)
                    await handle.release()
                    return

    async def acquire(self, *, ttl: float, timeout: float | None = None, renew: bool = False) -> Handle:
        """Wait for the lock.

        :raises LockError: as `LockClient.acquire` does; noted in the track.
        """
        self.note("acquiring")
        try:
            handle = await self.client.acquire(self.track.key, ttl=ttl, timeout=timeout, renew=renew)
        except AcquireTimeout as error:
            self.note("timed_out", error=str(error))
            raise
        except LockError as error:
            self.note("failed", error=str(error))
            raise
        return self.granted(handle)

    async def try_acquire(self, *, ttl: float, renew: bool = False) -> Handle | None:
        """One attempt; `None` when somebody else holds the lock.

        :raises LockError: the server failed; noted in the track.
        """
        self.note("acquiring")
        try:
            handle = await self.client.try_acquire(self.track.key, ttl=ttl, renew=renew)
        except LockError as error:
            self.note("failed", error=str(error))
            raise
        if handle is None:
            self.note("timed_out", error="somebody else holds the lock")
            return None
        return self.granted(handle)

    def granted(self, handle: Handle) -> Handle:
        """Note a handle that was obtained elsewhere."""
        self.handle = handle
        self.note("granted", fence=handle.fence, owner=handle.owner, remaining=round(handle.remaining(), 6))
        return handle

    async def write(self, body: str) -> str:
        """Write under the present fence: `accepted`, `stale`, `unknown` or `failed`."""
        assert self.handle is not None
        assert self._writer is not None
        handle = self.handle
        self.note("writing", fence=handle.fence, held=handle.held, body=body)
        reply = await self._writer.put(
            self.track.key, fence=handle.fence, owner=handle.owner, body=body.encode()
        )
        self.note(reply.write, fence=handle.fence, seen=reply.seen, error=reply.error)
        return reply.write

    async def release(self) -> bool:
        """Give the lock back: whether it was still ours.

        :raises LockError: the server failed; noted in the track.
        """
        assert self.handle is not None
        try:
            owned = await self.handle.release()
        except LockError as error:
            self.note("failed", error=str(error))
            raise
        self.note("released", owned=owned)
        return owned

    async def leave(self) -> None:
        """Give the lock back where nothing depends on it any more: a failure is noted, not raised."""
        with contextlib.suppress(LockError):
            await self.release()

    def stall(self, seconds: float) -> None:
        """Block the event loop, as a garbage collector would."""
        self.note("pausing", seconds=seconds)
        time.sleep(seconds)
        self.note("resumed")

    def note(self, event: str, **details: Any) -> None:
        """Something happened just now."""
        facts = {name: value for name, value in details.items() if value is not None}
        self.track.add(Event(now() - self._journal.origin, event, facts))
