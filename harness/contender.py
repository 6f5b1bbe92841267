"""One contender: arrive → acquire → pause → work → write with the fence → release.

Whatever happens on the way is an outcome in the arrival's row, never an exception.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from asyncdlock import AcquireTimeout, LockError, LockLost
from asyncdlock.client import LockClient
from asyncdlock.handle import Handle
from harness.clock import now
from harness.history import Outcome, Row
from harness.pacer import NANOSECONDS
from harness.writer import Reply


class Writer(Protocol):
    """Where a holder writes."""

    async def put(self, key: str, *, fence: int, owner: str, body: bytes) -> Reply: ...


class Contenders:
    """What every member of a fleet does with an arrival; `serve` and `give_up` are the runner's."""

    def __init__(
        self,
        client: LockClient,
        writer: Writer,
        record: Callable[[Row], None],
        *,
        start: int,
        key_of: Callable[[int], str],
        ttl: float,
        timeout: float | None = None,
        work: float = 0.0,
        pause: float = 0.0,
        pause_period: int = 0,
        process: int = 0,
    ) -> None:
        """`start` is the run's origin on `clock.now()`; durations are seconds.

        Every `pause_period`-th arrival, from the first, is frozen for `pause` once it holds.
        """
        self._client = client
        self._writer = writer
        self._record = record
        self._start = start
        self._key_of = key_of
        self._ttl = ttl
        self._timeout = timeout
        self._work = work
        self._pause = pause
        self._pause_period = pause_period
        self._process = process
        self.waiting = 0
        """Calls of `acquire` that have not returned."""

    async def serve(self, contender: int, number: int, due: int) -> None:
        """Live one arrival's life and record it. A cancellation is recorded as `abandoned`."""
        row = Row(number, self._process, contender, self._key_of(number), due, dispatched=now() - self._start)
        try:
            row.outcome = await self._live(row)
        except AcquireTimeout:
            row.outcome = "timed_out"
        except LockLost as error:
            row.outcome, row.error = "lost", str(error)
        except (LockError, OSError) as error:
            row.outcome, row.error = "failed", _one_line(error)
        finally:
            self._record(row)

    def give_up(self, number: int, due: int, outcome: Outcome) -> None:
        """Record an arrival that no contender ever took."""
        self._record(Row(number, self._process, -1, self._key_of(number), due, outcome=outcome))

    async def _live(self, row: Row) -> Outcome:
        row.paused = self._pause_period > 0 and row.id % self._pause_period == 0
        handle = await self._acquire(row)
        row.granted = now() - self._start
        row.owner = handle.owner
        row.fence = handle.fence
        lost: LockLost | None = None
        try:
            await self._use(row, handle)
        except LockLost as error:
            lost = error
        # Not reached by a cancellation: closing the client gives back what is still held.
        owned = await handle.release()
        row.released = now() - self._start
        if lost is not None:
            raise lost
        if row.write == "stale":
            return "stale"
        if row.write != "accepted":
            return "failed"
        return "ok" if owned else "lost"

    async def _use(self, row: Row, handle: Handle) -> None:
        """Work and write, as long as the lock is believed to be held."""
        if row.paused:
            await asyncio.sleep(self._pause)
        if self._work:
            await asyncio.sleep(self._work)
        if not row.paused:
            # A frozen process cannot look at its lease between waking up and writing; one that
            # runs can, and mostly finds out in time. The resource always does.
            handle.check()
        row.write_sent = now() - self._start
        row.write = "unknown"  # from here on it may have happened
        reply = await self._writer.put(row.key, fence=handle.fence, owner=handle.owner, body=_body(row))
        row.write = reply.write
        row.seen = reply.seen
        row.error = reply.error
        if reply.write in ("accepted", "stale"):
            row.write_done = now() - self._start

    async def _acquire(self, row: Row) -> Handle:
        self.waiting += 1
        called = row.called = now() - self._start
        left = None if self._timeout is None else self._timeout - (called - row.intended) / NANOSECONDS
        try:
            # Nobody renews the lease of a frozen process.
            return await self._client.acquire(row.key, ttl=self._ttl, timeout=left, renew=not row.paused)
        finally:
            self.waiting -= 1


def _body(row: Row) -> bytes:
    return f"{row.id} {row.owner}".encode()


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
