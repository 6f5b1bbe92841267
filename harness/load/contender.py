"""One contender: arrive → acquire → pause → work → write with the fence → release.

Whatever happens on the way is an outcome in the arrival's row, never an exception.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from asyncdlock import AcquireTimeout, LockError, LockLost
from asyncdlock.client import LockClient
from asyncdlock.handle import Handle
from harness.history import Outcome, Row
from harness.history.rows import body_of
from harness.live.watch import LockWatch
from harness.load.clock import now
from harness.load.freezes import Freezes
from harness.load.kinds import Kind
from harness.load.pacer import NANOSECONDS
from harness.load.sections import Sections
from harness.resource.client import NotSent, Reply
from harness.resource.wire import Connection


class Writer(Protocol):
    """Where a holder writes."""

    def take(self) -> Connection | None: ...

    async def connect(self) -> Connection: ...

    async def put(self, key: str, body: bytes, *, fence: int, owner: str, on: Connection) -> Reply: ...


class Arrivals(Protocol):
    """Who admits arrivals: a contender that finds one due asks for it."""

    due: int

    def admit(self) -> None: ...


class _NoArrivals:
    due = 1 << 62

    def admit(self) -> None: ...


_ALONE = Kind()


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
        sections: Sections | None = None,
        kind: Kind = _ALONE,
        freezes: Freezes | None = None,
        observe_connection: Callable[[int], object] = lambda waited: None,
    ) -> None:
        """`start` is the run's origin on `clock.now()`; durations are seconds.

        Every `pause_period`-th arrival, from the first, is frozen for `pause` once it holds.
        `observe_connection` gets the nanoseconds for which each holder waited for a connection.
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
        self._sections = sections or Sections()
        self._kind = kind
        self._freezes = freezes or Freezes()
        self._observe_connection = observe_connection
        self.arrivals: Arrivals = _NoArrivals()
        """Asked at each step of a contender for what is due."""
        self.watch: LockWatch | None = None
        """Is told who comes and goes, for the live page."""
        self.waiting = 0
        """Calls of `acquire` that have not returned."""

    async def serve(self, contender: int, number: int, due: int) -> None:
        """Live one arrival's life and record it. A cancellation is recorded as `abandoned`."""
        at = now()
        if at >= self.arrivals.due:
            self.arrivals.admit()
        row = Row(number, self._process, contender, self._key_of(number), due, dispatched=at - self._start)
        if self.watch is not None:
            self.watch.begin(row)
        try:
            handle = await self._acquire(row, at)
            if handle is not None:
                row.outcome = await self._hold(row, handle)
        except AcquireTimeout:
            row.outcome = "timed_out"
        except LockLost as error:
            row.outcome, row.error = "lost", str(error)
        except (LockError, OSError) as error:
            row.outcome, row.error = "failed", _one_line(error)
        finally:
            if row.paused and row.granted is None:
                self._freezes.spare(row)
            if self.watch is not None:
                self.watch.end(row)
            self._record(row)

    def give_up(self, number: int, due: int, outcome: Outcome) -> None:
        """Record an arrival that no contender ever took."""
        self._record(Row(number, self._process, -1, self._key_of(number), due, outcome=outcome))

    async def _acquire(self, row: Row, at: int) -> Handle | None:
        """The lock; `None` for an arrival that has no patience left, and sends nothing."""
        left = None
        if self._timeout is not None:
            left = self._timeout - (at - self._start - row.intended) / NANOSECONDS
            if left <= 0:
                row.outcome = "timed_out"
                return None
        if self._pause_period:
            row.paused = row.id % self._pause_period == 0
        if at - self._start >= self._freezes.due:
            self._freezes.choose(row)
        key = row.key
        row.called = at - self._start
        self.waiting += 1
        asked = self._sections.ask(key, at)
        row.shared = self._kind.share > 0 and self._kind.beside_others(row.id)
        try:
            # Nobody renews the lease of a frozen process.
            if row.shared:
                handle = await self._kind.acquire(
                    self._client, key, ttl=self._ttl, timeout=left, renew=not row.paused
                )
            else:
                handle = await self._client.acquire(key, ttl=self._ttl, timeout=left, renew=not row.paused)
        finally:
            self.waiting -= 1
            self._sections.answered(key, asked)
        at = now()
        row.granted = at - self._start
        row.owner = handle.owner
        row.fence = handle.fence
        row.valid_until = self._valid_until(handle)  # for a holder that does not live to release it
        if at >= self.arrivals.due:
            self.arrivals.admit()
        return handle

    def _valid_until(self, handle: Handle) -> int:
        return int(handle.expires_at * NANOSECONDS) - self._start

    async def _hold(self, row: Row, handle: Handle) -> Outcome:
        lost: LockLost | None = None
        try:
            if row.paused:
                await self._freezes.stand_still(row, self._start, self._pause)
            if self._work:
                await asyncio.sleep(self._work)
            if not row.paused:
                # A frozen process cannot look at its lease between waking up and writing; one that
                # runs can, and mostly finds out in time. The resource always does.
                handle.check()
            if self._kind.writes or not row.shared:
                await self._write(row, handle)
        except LockLost as error:
            lost = error
        # Not reached by a cancellation: closing the client gives back what is still held.
        row.valid_until = self._valid_until(handle)
        row.releasing = now() - self._start
        owned = await handle.release()
        row.released = now() - self._start
        if lost is not None:
            raise lost
        if row.write == "stale":
            return "stale"
        if row.write != "accepted" and (self._kind.writes or not row.shared):
            return "failed"
        return "ok" if owned else "lost"

    async def _write(self, row: Row, handle: Handle) -> None:
        sections = self._sections
        sections.writing += 1
        try:
            connection = self._writer.take() or await self._connection(row)
            if connection is None:
                return
            row.write_sent = now() - self._start
            row.write = "unknown"  # from here on it may have happened
            reply = await self._writer.put(
                row.key, body_of(row), fence=handle.fence, owner=handle.owner, on=connection
            )
        finally:
            sections.writing -= 1
        row.write, row.seen, row.error = reply.meaning
        at = now()
        if row.write in ("accepted", "stale"):
            row.write_done = at - self._start
        if at >= self.arrivals.due:
            self.arrivals.admit()

    async def _connection(self, row: Row) -> Connection | None:
        """Wait for a connection with the lock in hand: `Sections` sees to it that few have to."""
        asked = now()
        try:
            return await self._writer.connect()
        except NotSent as error:
            row.write, row.error = "failed", str(error)
            return None
        finally:
            self._observe_connection(now() - asked)


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
