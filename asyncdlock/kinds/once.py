"""once(): of all replicas one runs a job for a tick, whatever their clocks say.

A lock alone does not do: the job ends, the lock is free, and a replica whose clock is late runs the tick
again. So the server remembers the last tick that was begun, in the one number that it keeps for ever and that
only rises: the fence counter of the job's key. Whoever wins the lock at tick T and finds a fence above T's
mark is too late. If not, it lifts the counter above the mark, and only then runs the job.

A mark is the tick's time in milliseconds times 2,048. That leaves room for 2,048 grants in each millisecond
of a tick, and stays below 2^53, which every language can count to, until the year 2109.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from asyncdlock._arguments import check_key
from asyncdlock._backoff import jittered
from asyncdlock._durations import parse_positive_duration
from asyncdlock._hold import give_back
from asyncdlock.errors import (
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
    LockError,
    LockLost,
    QuorumError,
)
from asyncdlock.handle import Handle
from asyncdlock.kinds.turn import Turn

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

_log = logging.getLogger("asyncdlock")

_GRANTS_PER_MS = 2048
_MOST_COUNTED = 1000  # ms by which grants have counted up from a mark
_ROUNDED = 0.6  # ms: a mark stands for its tick's time to the next millisecond
_SHORTEST = 0.1  # seconds: a job that is due more often wants a leader
_LONGEST_SLEEP = 60.0  # seconds: the wall clock may be set meanwhile


class Tick(Turn):
    """A tick for this replica to run: put `async with tick:` around the job."""

    __slots__ = ("at", "missed", "previous")

    at: datetime
    previous: datetime | None
    missed: int

    def __init__(self, handle: Handle, at: float, previous: float | None, missed: int) -> None:
        super().__init__(handle)
        self.at = _moment(at)
        """When it is due, in UTC: the same for every replica, whatever its clock says."""
        self.previous = None if previous is None else _moment(previous)
        """The last tick before this one that any replica began; `None` if there was none."""
        self.missed = missed
        """How many ticks between the two were begun by nobody."""


class Ticks:
    """What `LockClient.once` returns: an async iterator over the ticks that this replica wins."""

    __slots__ = ("_client", "_clock", "_every", "_job", "_max_hold", "_seen", "_tick", "_ttl")

    def __init__(
        self,
        client: "LockClient",
        job: str,
        *,
        every: float | str,
        ttl: float,
        max_hold: float | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._job = job
        self._every = _length(every)
        self._ttl = ttl
        self._max_hold = max_hold
        self._clock = clock
        self._seen = self._latest()
        self._tick: Tick | None = None
        check_can(client)

    def _latest(self) -> float:
        """The tick that came due last, by this replica's clock."""
        return math.floor(self._clock() / self._every) * self._every

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        """Wait for a tick that no other replica has begun.

        :raises LockError: the tick before this one was not entered, or as `acquire`.
        """
        if self._tick is not None:
            await self._tick._finish()
        while True:
            self._seen = await self._next_due()
            tick = await self._begin(self._seen)
            if tick is not None:
                self._tick = tick
                return tick

    async def _next_due(self) -> float:
        while True:
            due = self._latest()
            if due > self._seen:
                return due
            await asyncio.sleep(min(_LONGEST_SLEEP, max(0.0, due + self._every - self._clock())))

    async def _begin(self, due: float) -> Tick | None:
        """The tick, unless another replica has begun it or its time is over before the lock is free."""
        delays = jittered(0.1, 5.0)
        while (left := due + self._every - self._clock()) > 0:
            try:
                return await begin(
                    self._client,
                    self._job,
                    due,
                    ttl=self._ttl,
                    timeout=left,
                    max_hold=self._max_hold,
                    every=self._every,
                )
            except AcquireTimeout:
                break
            except (BackendUnavailable, QuorumError, LockLost) as error:
                _log.warning("the tick %s of %r is not begun yet: %s", _moment(due), self._job, error)
                await asyncio.sleep(min(next(delays), left))
        _log.warning("the tick %s of %r was over before it could be begun here", _moment(due), self._job)
        return None


async def begin(
    client: "LockClient",
    job: str,
    at: float,
    *,
    ttl: float,
    timeout: float | None,
    max_hold: float | None,
    every: float = math.inf,
) -> Tick | None:
    """Begin the tick that is due `at`; `None` when it, or a later one, was begun before.

    If this is cancelled or fails after the counter was raised, the tick counts as begun.
    """
    handle = await client.acquire("once:" + check_key(job), ttl=ttl, timeout=timeout, max_hold=max_hold)
    mark = round(at * 1000) * _GRANTS_PER_MS
    previous = _begun_before(handle.fence, at, every)
    if previous is not None and handle.fence > mark:
        if previous > at + every:
            _log.warning("%r has begun the tick %s before its time: a clock is ahead", job, _moment(previous))
        await give_back(handle)
        return None
    try:
        await _remember(client, handle, mark)
    except BaseException:
        await give_back(handle)
        raise
    missed = 0 if previous is None else max(0, round((at - previous) / every) - 1)
    if missed:
        _log.warning("%d ticks of %r were missed before %s", missed, job, _moment(at))
    return Tick(handle, at, previous, missed)


def _begun_before(fence: int, at: float, every: float) -> float | None:
    """The last tick that was begun before this grant.

    Every grant since then, also to those who came too late for that tick, has counted up from its mark: with
    local hand-off a few of them are a millisecond.
    """
    counted = (fence - 1) // _GRANTS_PER_MS
    if every < math.inf:
        tick = math.floor((counted + _ROUNDED) / (1000 * every)) * every
    else:
        # Of a scheduler that we do not know: as round a time as that of the tick that it asks for.
        step = next(step for step in (1000, 100, 10, 1) if round(at * 1000) % step == 0)
        tick = counted // step * step / 1000
    if counted - 1000 * tick > _MOST_COUNTED:
        tick = counted / 1000  # begun when the ticks had another length
    return tick or None


async def _remember(client: "LockClient", handle: Handle, mark: int) -> None:
    """Raise the counter while the lease lasts: nobody else can have decided to run the tick meanwhile.

    :raises LockLost: the lease ended before the server confirmed it.
    """
    delays = jittered(0.02, 0.5)
    while True:
        try:
            await client.raise_fence(handle.key, above=mark)
        except BackendError as error:
            if error.definite or not handle.held:
                raise
            await asyncio.sleep(next(delays))
        else:
            handle.check()
            return


def check_can(client: "LockClient") -> None:
    """:raises LockError: the backend keeps no counter that could remember a tick."""
    can = client.capabilities
    if not can.once:
        why = "are counted otherwise (fence_counter=)" if can.fence_floor else "come from its own log"
        raise LockError(
            "once() needs a server whose fence counter remembers the last tick of each job; the fences of "
            f"this one {why}"
        )


def seconds_of(tick: datetime | float) -> float:
    """Seconds since the epoch.

    :raises ValueError: it is not a time, or not the same one everywhere.
    """
    if isinstance(tick, datetime):
        if tick.tzinfo is None:
            raise ValueError(f"the tick {tick!r} has no time zone: each replica would read it in its own")
        tick = tick.timestamp()
    if isinstance(tick, bool) or not isinstance(tick, int | float) or not 0 < tick < 2**32:
        raise ValueError(f"a tick is a datetime with a time zone or seconds since the epoch, not {tick!r}")
    return tick


def _length(every: float | str) -> float:
    if isinstance(every, str):
        seconds = parse_positive_duration(every)
    elif isinstance(every, bool) or not isinstance(every, int | float) or not 0 < every < math.inf:
        raise ValueError(f"every must be a duration like '1h' or a positive number of seconds, not {every!r}")
    else:
        seconds = float(every)
    if seconds < _SHORTEST:
        raise ValueError(f"every must be {_SHORTEST:g} s or more, not {every!r}")
    return seconds


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
