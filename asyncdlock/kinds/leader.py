"""lead(): one leader at a time, for as long as it lives; term after term.

A term is a lock that is held for a long time, and its number is the fence. The iteration waits to be elected;
the block runs the body and swallows the loss of the term, which is not an error here but the reason to
campaign again.
"""

import asyncio
import logging
from types import TracebackType
from typing import TYPE_CHECKING, Self

from asyncdlock._backoff import jittered
from asyncdlock.errors import BackendUnavailable, LockLost, QuorumError
from asyncdlock.handle import Handle
from asyncdlock.kinds.turn import Turn

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

_log = logging.getLogger("asyncdlock")


class Term(Turn):
    """One term: `async with term:` runs the body while it lasts, and is left quietly when it is lost."""

    __slots__ = ()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Resign. `True`, which ends the body's cancellation, when the term was lost."""
        try:
            return await super().__aexit__(kind, error, trace)
        except LockLost as lost:
            _log.warning("a term ended: %s", lost)
            return True


class Terms:
    """What `LockClient.lead` returns: an async iterator over the terms that are won."""

    __slots__ = ("_client", "_key", "_max_hold", "_term", "_ttl")

    def __init__(self, client: "LockClient", key: str, *, ttl: float, max_hold: float | None) -> None:
        self._client = client
        self._key = key
        self._ttl = ttl
        self._max_hold = max_hold
        self._term: Term | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Term:
        """Wait to be elected.

        :raises LockError: the term before this one was not entered, or as `acquire`.
        """
        if self._term is not None:
            await self._term._finish()
        self._term = Term(await self._campaign())
        return self._term

    async def _campaign(self) -> Handle:
        delays = jittered(0.1, 5.0)
        while True:
            try:
                return await self._client.acquire(self._key, ttl=self._ttl, max_hold=self._max_hold)
            except (BackendUnavailable, QuorumError) as error:
                # Whoever leads loses its term as well: go on until the servers are back.
                _log.warning("campaigning for %r goes on: %s", self._key, error)
                await asyncio.sleep(next(delays))
