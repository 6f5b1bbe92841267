"""Renews the leases of one client, many at a time; moves a deadline only after the server has confirmed it.

Held locks sit in a wheel of 10 ms buckets, by the time at which they need attention. One timer
serves the earliest bucket; all leases that are due then are renewed by one call of the backend in
one task. Ten thousand held locks cost one timer and a handful of requests, not ten thousand tasks.
"""

import asyncio
import logging
import time
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from asyncdlock._holding import HELD, NOT_OWNED, RAN_OUT, RELEASING
from asyncdlock.types import LeaseState, validity

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncdlock._holding import Holding
    from asyncdlock.backend import Backend
    from asyncdlock.metrics import Metrics

_log = logging.getLogger("asyncdlock")

_BUCKETS_PER_SECOND = 100
_RENEW_BEFORE = 2 / 3  # of the TTL before the lease ends: two more tries fit
_RENEW_WITHIN = 1 / 3  # of the TTL, or the server counts as silent; longer than `types.RENEWED_WITHIN`
# Seconds. Buckets are only removed when their time comes: this bounds how many locks of a long TTL,
# held for a moment, can leave behind. A lost lease of a long TTL is noticed sooner, too.
_LOOK_EVERY = 60.0
_NOT_RENEWED = "its lease ran out, and it was not to be renewed any longer"
_RETRY_AFTER = 1 / 10  # of the TTL, when the last renewal brought no answer


_SLOW_LOOP = 0.05  # seconds: below it, whatever the TTL, a loop is merely busy
_SLOW_PART = 1 / 6  # of the TTL: half of the time between two tries
_MOST_LOGGED = 20  # of those that one event concerns: the log shall not be what blocks the loop


def _log_each(holdings: "list[Holding]", what: str) -> None:
    """A warning for each of them, with the time that its lease has left."""
    now = time.monotonic()
    for holding in holdings[:_MOST_LOGGED]:
        key, fence = holding.key, holding.grant.fence
        left = max(0.0, holding.expires_at - now)
        _log.warning(
            "lock %r (fence %d), %.3f s left: %s",
            *(key, fence, left, what),
            extra={"key": key, "fence": fence},
        )
    if len(holdings) > _MOST_LOGGED:
        _log.warning("the same holds for %d further locks: %s", len(holdings) - _MOST_LOGGED, what)


class Watchdog:
    """The wheel, its timer and the renewals under way of one client."""

    def __init__(self, backend: "Backend", metrics: "Metrics") -> None:
        self._backend = backend
        self._metrics = metrics
        # By the hundredths of a second at which the holdings in it need attention.
        self._buckets: dict[int, set[Holding]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = 0
        self._renewing: dict[asyncio.Task[None], list[Holding]] = {}
        self.max_loop_lag: float = 0.0
        """The longest that the event loop kept a renewal timer waiting, in seconds."""

    def renew_through(self, wrapper: "Callable[[Backend], Backend]") -> None:
        """Let renewals go through what `wrapper` makes of the backend."""
        self._backend = wrapper(self._backend)

    def watch(self, holding: "Holding", now: float) -> None:
        """Look after `holding`: renew it in time, or notice when its lease has run out."""
        due = holding.expires_at
        if holding.renew_until > now:
            due -= holding.grant.claim.ttl * _RENEW_BEFORE
        if due > now + _LOOK_EVERY:
            due = now + _LOOK_EVERY
        # `_enter`, written out: every grant comes this way.
        number = int(due * _BUCKETS_PER_SECOND) + 1
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._add_bucket(number)
        bucket.add(holding)
        holding.bucket = bucket

    def _enter(self, holding: "Holding", due: float) -> None:
        number = int(due * _BUCKETS_PER_SECOND) + 1
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._add_bucket(number)
        bucket.add(holding)
        holding.bucket = bucket

    def _add_bucket(self, number: int) -> "set[Holding]":
        self._metrics.count()  # a hundred times a second at most
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
        due: list[Holding] = []
        while self._order and self._order[0] / _BUCKETS_PER_SECOND <= now:
            bucket = self._buckets.pop(heappop(self._order))
            holdings = list(bucket)
            bucket.clear()
            for holding in holdings:
                if holding.state is not HELD:
                    if holding.state is RELEASING:
                        self._enter(holding, now + _LOOK_EVERY)
                elif holding.expires_at <= now:
                    holding.lose(RAN_OUT if holding.renew_until > now else _NOT_RENEWED)
                elif holding.renew_until > now:
                    due.append(holding)
                else:
                    self.watch(holding, now)
        self._log_slow_loop(due, now)
        if due:
            task = asyncio.get_running_loop().create_task(self._renew(due), name="asyncdlock renewal")
            self._renewing[task] = due
            task.add_done_callback(self._renewing.pop)
        if self._timer is None:
            self._arm()

    def _note_lag(self, lag: float) -> None:
        self._metrics.loop_lag = max(0.0, lag)
        self.max_loop_lag = max(self.max_loop_lag, lag)

    def _log_slow_loop(self, due: "list[Holding]", now: float) -> None:
        """Name the leases of which the event loop has used up a good part before it let us renew them."""
        lag = now - self._timer_bucket / _BUCKETS_PER_SECOND
        if lag <= _SLOW_LOOP:
            return
        slow = [holding for holding in due if lag > holding.grant.claim.ttl * _SLOW_PART]
        _log_each(slow, f"the event loop was blocked for {lag:.3f} s, and the renewal of its lease as long")

    async def _renew(self, holdings: "list[Holding]") -> None:
        noted = time.monotonic()
        shortest = min(holding.grant.claim.ttl for holding in holdings)
        try:
            # Bounded, so that one hung request does not use up what is left of the lease.
            async with asyncio.timeout(shortest * _RENEW_WITHIN):
                states = await self._backend.renew([holding.grant for holding in holdings])
            if len(states) != len(holdings):
                raise ValueError(f"{len(holdings)} leases were to be renewed, {len(states)} answers came")
        except TimeoutError:
            states = [LeaseState.UNKNOWN] * len(holdings)
        except Exception:
            # A backend's defect must not leave its leases unwatched.
            _log.exception("renewal failed; the leases are not extended")
            states = [LeaseState.UNKNOWN] * len(holdings)
        outcomes = self._metrics.renewals
        unconfirmed = []
        now = time.monotonic()
        for holding, state in zip(holdings, states, strict=True):
            if holding.state is not HELD:
                if holding.state is RELEASING:
                    self._enter(holding, now + _LOOK_EVERY)
                continue
            outcomes[state.value] += 1
            if state is LeaseState.RENEWED:
                holding.extend(noted + validity(holding.grant.claim.ttl))
                if holding.state is HELD:
                    self.watch(holding, now)
            elif state is LeaseState.LOST:
                holding.lose(NOT_OWNED)
            else:
                unconfirmed.append(holding)
                self._enter(holding, min(now + holding.grant.claim.ttl * _RETRY_AFTER, holding.expires_at))
        _log_each(unconfirmed, "the server did not confirm its renewal")

    def watched(self) -> "list[Holding]":
        """Every holding that is held, or whose release is under way."""
        waiting = [holding for bucket in self._buckets.values() for holding in bucket]
        renewing = [holding for batch in self._renewing.values() for holding in batch]
        alive = (HELD, RELEASING)
        return [holding for holding in dict.fromkeys(waiting + renewing) if holding.state in alive]

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
