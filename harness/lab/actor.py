"""Takes a lock, writes and releases step by step, and says each step: what participants are made of."""

import asyncio
import contextlib
import time
import uuid
from typing import Protocol

from asyncdlock import AcquireTimeout, LockClient, LockError
from asyncdlock.handle import Handle
from harness.lab.event import Say
from harness.lab.track import PATIENCE
from harness.load.pacer import NANOSECONDS
from harness.resource.reply import Reply


class ResultWriter(Protocol):
    """Where results go: the fenced resource, or a store behind a guard."""

    async def put(self, key: str, body: bytes, *, fence: int | None, owner: str | None) -> Reply: ...


async def warm(client: LockClient, key: str) -> None:
    """Return when the client has its connections: a short TTL leaves little time for them.

    :raises TimeoutError: the servers do not answer.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(LockError):  # a first connection may take longer than one try may
                handle = await client.acquire(f"{key}, warm-up {uuid.uuid4().hex}", renew=False)
                await handle.release()
                return
            await asyncio.sleep(0.01)


class Actor:
    """A client of one lock that is told each step. In this process it serves schedules that need no process
    of their own; in a participant it is what the role is made of."""

    def __init__(self, key: str, client: LockClient, writer: ResultWriter | None, say: Say) -> None:
        self.key = key
        self.client = client
        self.say = say
        self._handle: Handle | None = None
        self._writer = writer

    @property
    def handle(self) -> Handle:
        """Of the last grant."""
        assert self._handle is not None
        return self._handle

    async def acquire(self, *, ttl: float, timeout: float | None = None, renew: bool = False) -> Handle:
        """Wait for the lock.

        :raises LockError, ValueError: as `LockClient.acquire` does; said before.
        """
        self.say("acquiring", key=self.key)
        try:
            handle = await self.client.acquire(self.key, ttl=ttl, timeout=timeout, renew=renew)
        except AcquireTimeout as error:
            self.say("timed_out", error=str(error))
            raise
        except (LockError, ValueError, OSError) as error:
            self.say("failed", error=str(error))
            raise
        return self.granted(handle)

    async def try_acquire(self, *, ttl: float, renew: bool = False) -> Handle | None:
        """One attempt; `None` when somebody else holds the lock.

        :raises LockError: the server failed; said before.
        """
        self.say("acquiring", key=self.key)
        try:
            handle = await self.client.try_acquire(self.key, ttl=ttl, renew=renew)
        except LockError as error:
            self.say("failed", error=str(error))
            raise
        if handle is None:
            self.say("timed_out", error="somebody else holds the lock")
            return None
        return self.granted(handle)

    def granted(self, handle: Handle) -> Handle:
        """Take over a handle that was obtained elsewhere."""
        self._handle = handle
        remaining = round(handle.remaining(), 6)
        told = {"key": self.key, "fence": handle.fence, "owner": handle.owner, "remaining": remaining}
        self.say("granted", **told, valid_until=_valid_until(handle))
        return handle

    async def write(self, body: str, *, fenced: bool = True) -> str:
        """Write under the present fence: `accepted`, `stale`, `unknown` or `failed`."""
        assert self._writer is not None
        handle = self.handle
        self.say("writing", fence=handle.fence, held=handle.held, body=body)
        reply = await self._writer.put(
            self.key, body.encode(), fence=handle.fence if fenced else None, owner=handle.owner
        )
        self.say(reply.write, fence=handle.fence, seen=reply.seen, error=reply.error)
        return reply.write

    async def release(self) -> bool:
        """Give the lock back: whether it was still ours.

        :raises LockError: the server failed; said before.
        """
        valid_until = _valid_until(self.handle)  # the renewals included
        try:
            owned = await self.handle.release()
        except LockError as error:
            self.say("failed", error=str(error))
            raise
        self.say("released", owned=owned, valid_until=valid_until)
        return owned

    async def finish(self, body: str) -> str:
        """Write and give the lock back: what the resource said.

        :raises LockError: the server failed; said before.
        """
        said = await self.write(body)
        await self.release()
        return said

    async def leave(self) -> None:
        """Give the lock back where nothing depends on it any more: a failure is said, not raised."""
        with contextlib.suppress(LockError):
            await self.release()

    def stall(self, seconds: float) -> None:
        """Block the event loop, as a garbage collector would."""
        self.say("pausing", seconds=seconds)
        time.sleep(seconds)
        self.say("resumed")


def _valid_until(handle: Handle) -> int:
    """Until when the lock promised to hold, in nanoseconds of the events' clock."""
    return int(handle.expires_at * NANOSECONDS)
