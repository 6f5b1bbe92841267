"""observe(): who leads, for those who do not stand for election themselves.

No server reports a change of holder to clients that do not wait for the lock, so an observer polls, at most
once per interval, which its caller chooses.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from asyncdlock._arguments import check_every
from asyncdlock.errors import BackendUnavailable, LockError, QuorumError

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

_log = logging.getLogger("asyncdlock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads, as `LockClient.observe` found it. What cannot be known is `None`."""

    owner: str | None
    label: str | None
    """What the leader calls itself: `host:pid` unless it chose another label."""
    term: int | None
    """The fence of its term."""


class Leaders:
    """What `LockClient.observe` returns: an async iterator over the changes of leader."""

    __slots__ = ("_begun", "_client", "_every", "_key", "_leader", "_look_at")

    def __init__(self, client: "LockClient", key: str, *, every: float) -> None:
        check_every(every)
        self._client = client
        self._key = key
        self._every = every
        self._begun = False
        self._leader: Leader | None = None
        self._look_at = 0.0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leader | None:
        """Who leads: the first time now, after that as soon as it has changed.

        :raises StopAsyncIteration: the client was closed.
        :raises LockError, InvalidKey, BackendError: as `inspect`.
        """
        core = self._client._core
        if self._begun and core.closed:
            raise StopAsyncIteration
        callers = core.callers
        task = callers.current()
        callers.inside[task] = task.cancelling()
        try:
            return await self._change()
        except BaseException as error:
            try:
                callers.check(task, error)
            except LockError:
                raise StopAsyncIteration from None
            if self._begun and core.closed and isinstance(error, LockError):
                raise StopAsyncIteration from None
            raise
        finally:
            del callers.inside[task]
            callers.left(task)

    async def _change(self) -> Leader | None:
        while True:
            if self._look_at:
                await asyncio.sleep(max(0.0, self._look_at - time.monotonic()))
            try:
                leader = await self._look()
            except (BackendUnavailable, QuorumError) as error:
                # Nobody can tell whether the leader still leads: go on until the servers are back.
                _log.warning("observing %r goes on: %s", self._key, error)
                continue
            finally:
                self._look_at = time.monotonic() + self._every
            if not self._begun or leader != self._leader:
                self._begun = True
                self._leader = leader
                return leader

    async def _look(self) -> Leader | None:
        info = await self._client.inspect(self._key)
        if not info.held:
            return None
        leader = Leader(owner=info.owner, label=info.label, term=info.fence)
        known = self._leader
        if known is None or known.owner != leader.owner:
            return leader
        # Another majority of the quorum than before may know less than that one did.
        return replace(
            leader,
            label=known.label if leader.label is None else leader.label,
            term=known.term if leader.term is None else leader.term,
        )
