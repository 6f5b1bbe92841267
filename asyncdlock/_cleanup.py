"""Finishes what a cancelled or failed call began, in the background, until it is done or pointless.

A few workers share all claims, and a claim that failed waits for its next try without a worker: neither a
hundred thousand claims nor one silent shard hold up the rest.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator

from asyncdlock._backoff import jittered
from asyncdlock.backend import Backend
from asyncdlock.errors import BackendError
from asyncdlock.types import Claim

_log = logging.getLogger("asyncdlock")

_WORKERS = 256
_RETRIES_PER_SECOND = 2000  # of all claims together: a server that is away is not worth a core
# Seconds. A place in a queue has no TTL: it ends when its session is taken for dead, which may live on.
_LEAST_FOR_A_PLACE = 5.0


class _Debt:
    """A claim to be given back, until when that makes sense, and how long to wait between tries."""

    __slots__ = ("claim", "delays", "give_up")

    def __init__(self, claim: Claim, patience: float) -> None:
        self.claim = claim
        self.give_up = time.monotonic() + patience
        self.delays: Iterator[float] = jittered(0.05, 1.0)


class Cleanup:
    """The give-backs under way of one client."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._due: deque[_Debt] = deque()
        self._later: set[asyncio.TimerHandle] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._given_back = 0
        self._closed = False

    @property
    def pending(self) -> bool:
        """Whether anything is still to be given back."""
        return bool(self._due or self._later or self._workers)

    def give_back(self, claim: Claim, *, may_wait: bool = False) -> None:
        """Release `claim` in the background, whatever state it is in; once drained, leave it to its TTL.

        `may_wait`: it may stand in a queue.
        """
        if not self._closed:
            # After one TTL the server has ended a lease by itself: trying longer is pointless.
            self._put(_Debt(claim, max(claim.ttl, _LEAST_FOR_A_PLACE if may_wait else 0.0)))

    def _put(self, debt: _Debt) -> None:
        self._due.append(debt)
        if len(self._workers) < _WORKERS:
            worker = asyncio.get_running_loop().create_task(self._work(), name="asyncdlock give back")
            if not worker.done():
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        while self._due:
            debt = self._due.popleft()
            try:
                await self._backend.release(debt.claim)
            except BackendError as error:
                self._try_later(debt, error)
            except Exception:
                _log.exception("giving back %r failed; it expires with its TTL", debt.claim.key)
            else:
                self._given_back += 1

    def _try_later(self, debt: _Debt, error: BackendError) -> None:
        delay = max(next(debt.delays), len(self._later) / _RETRIES_PER_SECOND)
        if time.monotonic() + delay >= debt.give_up:
            _log.warning("could not give back %r: %s; it expires with its TTL", debt.claim.key, error)
            return

        def again() -> None:
            self._later.discard(timer)
            self._put(debt)

        timer = asyncio.get_running_loop().call_later(delay, again)
        self._later.add(timer)

    async def drain(self, timeout: float) -> None:
        """Wait for what is under way; `timeout` seconds without success leave the rest to its TTLs."""
        given_back, deadline = self._given_back, time.monotonic() + timeout
        while self.pending and (left := deadline - time.monotonic()) > 0:
            if self._workers:
                await asyncio.wait(tuple(self._workers), timeout=min(left, 0.1))
            else:
                await asyncio.sleep(min(left, 0.01))
            if self._given_back > given_back:
                given_back, deadline = self._given_back, time.monotonic() + timeout
        self.disown()
        for timer in self._later:
            timer.cancel()
        self._later.clear()
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)

    def disown(self) -> None:
        """Take nothing more: what is left is left to its TTL."""
        self._closed = True
        self._due.clear()
