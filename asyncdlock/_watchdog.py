"""Renews the leases of one client, many at a time; can only move a deadline after the server said yes.

Held locks sit in a wheel of 10 ms buckets by the time at which they want attention. One timer
serves the earliest bucket; all leases that are due then are renewed by one call of the backend in
one task. Ten thousand held locks cost one timer and a handful of requests, not ten thousand tasks.
"""

import asyncio
import logging
import time
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from asyncdlock.types import LeaseState, validity

if TYPE_CHECKING:
    from asyncdlock.backend import Backend
    from asyncdlock.handle import Handle
    from asyncdlock.metrics import Metrics

_log = logging.getLogger("asyncdlock")

_BUCKETS_PER_SECOND = 100
_RENEW_BEFORE = 2 / 3  # of the TTL before the lease ends: two more tries fit
_RENEW_WITHIN = 1 / 3  # of the TTL, or the server counts as silent
# Seconds. Buckets are only removed when their time comes: this bounds how many locks of a long TTL,
# held for a moment, can leave behind. A lost lease of a long TTL is noticed sooner, too.
_LOOK_EVERY = 60.0
_RETRY_AFTER = 1 / 10  # of the TTL, when the last renewal brought no answer


class Watchdog:
    """The wheel, its timer and the renewals under way of one client."""

    def __init__(self, backend: "Backend", metrics: "Metrics") -> None:
        self._backend = backend
        self._metrics = metrics
        # By the hundredths of a second at which the handles in it want attention.
        self._buckets: dict[int, set[Handle]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = 0
        self._renewing: dict[asyncio.Task[None], list[Handle]] = {}
        self.max_loop_lag = 0.0
        """The longest that the event loop kept a renewal timer waiting, in seconds."""

    def watch(self, handle: "Handle", now: float) -> None:
        """Look after `handle`: renew it in time, or notice when its lease has run out."""
        due = handle.expires_at
        if handle.renew_until > now:
            due -= handle.grant.claim.ttl * _RENEW_BEFORE
        if due > now + _LOOK_EVERY:
            due = now + _LOOK_EVERY
        self._enter(handle, due)

    def forget(self, handle: "Handle") -> None:
        """Stop looking after `handle`; a renewal in flight no longer touches it."""
        if handle.bucket is not None:
            handle.bucket.discard(handle)

    def _enter(self, handle: "Handle", due: float) -> None:
        number = int(due * _BUCKETS_PER_SECOND) + 1
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._add_bucket(number)
        bucket.add(handle)
        handle.bucket = bucket

    def _add_bucket(self, number: int) -> "set[Handle]":
        bucket = self._buckets[number] = set()
        heappush(self._order, number)
        if self._timer is None or number < self._timer_bucket:
            self._arm()
        return bucket

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._order:
            return
        self._timer_bucket = self._order[0]
        delay = self._timer_bucket / _BUCKETS_PER_SECOND - time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._turn)

    def _turn(self) -> None:
        """Serve every bucket whose time has come."""
        now = time.monotonic()
        self._note_lag(now - self._timer_bucket / _BUCKETS_PER_SECOND)
        self._timer = None
        due: list[Handle] = []
        while self._order and self._order[0] / _BUCKETS_PER_SECOND <= now:
            bucket = self._buckets.pop(heappop(self._order))
            handles = list(bucket)
            bucket.clear()
            for handle in handles:
                if handle.expires_at <= now:
                    handle.lose(
                        "its lease ran out before it was renewed"
                        if handle.renew_until > now
                        else "its lease ran out, and it was not to be renewed any longer"
                    )
                elif handle.renew_until > now:
                    due.append(handle)
                else:
                    self.watch(handle, now)
        if due:
            task = asyncio.get_running_loop().create_task(self._renew(due), name="asyncdlock renewal")
            self._renewing[task] = due
            task.add_done_callback(self._renewing.pop)
        if self._timer is None:
            self._arm()

    def _note_lag(self, lag: float) -> None:
        self._metrics.loop_lag = max(0.0, lag)
        self.max_loop_lag = max(self.max_loop_lag, lag)

    async def _renew(self, handles: "list[Handle]") -> None:
        noted = time.monotonic()
        shortest = min(handle.ttl for handle in handles)
        try:
            # Bounded, so that one hung request does not use up what is left of the lease.
            async with asyncio.timeout(shortest * _RENEW_WITHIN):
                states = await self._backend.renew([handle.grant for handle in handles])
            if len(states) != len(handles):
                raise ValueError(f"{len(handles)} leases were to be renewed, {len(states)} answers came")
        except TimeoutError:
            states = [LeaseState.UNKNOWN] * len(handles)
        except Exception:
            # A backend's defect must not leave its leases unwatched.
            _log.exception("renewal failed; the leases are not extended")
            states = [LeaseState.UNKNOWN] * len(handles)
        outcomes = self._metrics.renewals
        now = time.monotonic()
        for handle, state in zip(handles, states, strict=True):
            if not handle.active:
                continue
            outcomes[state.value] += 1
            if state is LeaseState.RENEWED:
                handle.extend(noted + validity(handle.ttl))
                self.watch(handle, now)
            elif state is LeaseState.LOST:
                handle.lose("the server says that it is owned by another or expired")
            else:
                self._enter(handle, min(now + handle.ttl * _RETRY_AFTER, handle.expires_at))

    def watched(self) -> "list[Handle]":
        """Every handle that is looked after now."""
        waiting = [handle for bucket in self._buckets.values() for handle in bucket]
        renewing = [handle for batch in self._renewing.values() for handle in batch if handle.active]
        return list(dict.fromkeys(waiting + renewing))

    async def aclose(self) -> None:
        """Stop the timer and every renewal under way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._order.clear()
        tasks = list(self._renewing)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
