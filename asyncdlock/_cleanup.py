"""Finishes what a cancelled or failed call began, in the background, until it is done or pointless."""

import asyncio
import logging
import time

from asyncdlock._backoff import jittered
from asyncdlock.backend import Backend
from asyncdlock.errors import BackendError
from asyncdlock.types import Claim

_log = logging.getLogger("asyncdlock")


class Cleanup:
    """The give-backs under way of one client."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def give_back(self, claim: Claim) -> None:
        """Release `claim` in the background, whatever state it is in; once drained, its TTL must do."""
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._give_back(claim), name=f"give back {claim.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_back(self, claim: Claim) -> None:
        # After one TTL the server has expired the claim by itself: trying longer is pointless.
        give_up = time.monotonic() + claim.ttl
        for delay in jittered(0.05, 1.0):
            try:
                await self._backend.release(claim)
            except BackendError as error:
                if time.monotonic() + delay >= give_up:
                    _log.warning("could not give back %r: %s; it expires with its TTL", claim.key, error)
                    return
                await asyncio.sleep(delay)
            else:
                return

    async def drain(self, timeout: float) -> None:
        """Wait for the give-backs under way; after `timeout` seconds leave the rest to their TTLs."""
        deadline = time.monotonic() + timeout
        while self._tasks and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(tuple(self._tasks), timeout=left)
        self._closed = True
        late = tuple(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
