"""What both Redis backends have in common: renew, raise a fence, close."""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Protocol

from asyncdlock.backends.redis import requests
from asyncdlock.backends.redis.background import Background
from asyncdlock.backends.redis.client_record import ClientRecord
from asyncdlock.backends.redis.fence_counter import FenceCounter
from asyncdlock.backends.redis.node import Node
from asyncdlock.backends.redis.replies import OutcomeUnknown
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.errors import BackendError
from asyncdlock.types import RENEWED_WITHIN, Claim, Grant, LeaseState

# Locks renewed by one script: a quarter of a millisecond of the server's one thread.
_RENEW_CHUNK = 256
# Scripts in flight at once on a shard: in a cluster every slot needs its own.
_RENEW_AT_ONCE = 128
# Grants whose fences are remembered: leases that end without a release must not add up.
MOST_FENCES = 100_000


class ScriptRunner(Protocol):
    """What the verbs need of a server or a cluster."""

    @property
    def commands(self) -> int: ...
    def batches(self, keys: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        """Indices of the keys that one script may touch together, at most `most` at a time."""
        ...

    def shard(self, key: str) -> object:
        """Equal for keys that are served by the same server, as far as is known."""
        ...

    def run(self, script: Script, key: str, request: bytes) -> Coroutine[Any, Any, Any]:
        """Run `script` by its `request`.

        :raises OutcomeUnknown: the script works once only, and perhaps had been carried out before.
        :raises BackendError: the server failed, or refused it.
        """
        ...

    def send(self, script: Script, key: str, request: bytes) -> Awaitable[Any]:
        """The first half of `run`; what it raises goes to `run_again`."""
        ...

    async def run_again(self, error: BackendError, script: Script, key: str, request: bytes) -> Any:
        """The second half of `run`."""
        ...

    async def nodes(self) -> Sequence[Node]:
        """Every server that stores locks."""
        ...

    async def aclose(self) -> None: ...


class RedisBackend:
    """A backend on one server or cluster that runs scripts."""

    def __init__(
        self, server: ScriptRunner, *, local_queue: bool, local_handoffs: int, counter: FenceCounter
    ) -> None:
        self._server = server
        self._counter = counter
        self.local_queue = local_queue
        self.local_handoffs = local_handoffs
        self._background = Background()
        self._record = ClientRecord(server, self._background, fences=local_handoffs + 1)
        # The last fence of each grant, by owner: it shows whether anybody had the lock since.
        self._last_fences: dict[str, int] = {}

    @property
    def commands(self) -> int:
        return self._server.commands

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        states = [LeaseState.UNKNOWN] * len(grants)
        self._record.tell_since(grants)
        batches = self._batches(grants)
        if len(batches) == 1:  # most often so, and then a task would cost more than the request
            await self._renew_batch(grants, batches[0], states)
            return states
        shards: dict[object, list[Sequence[int]]] = {}
        for batch in batches:
            shards.setdefault(self._server.shard(grants[batch[0]].claim.key), []).append(batch)
        within = RENEWED_WITHIN * min((grant.claim.ttl for grant in grants), default=0.0)
        await asyncio.gather(*(self._renew_shard(grants, of, states, within) for of in shards.values()))
        return states

    def _batches(self, grants: Sequence[Grant]) -> Sequence[Sequence[int]]:
        """Indices of the grants that one script may renew."""
        return self._server.batches([grant.claim.key for grant in grants], _RENEW_CHUNK)

    async def _renew_shard(
        self,
        grants: Sequence[Grant],
        batches: Sequence[Sequence[int]],
        states: list[LeaseState],
        within: float,
    ) -> None:
        """Renew all these batches; what is not answered in time stays unknown."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                for start in range(0, len(batches), _RENEW_AT_ONCE):
                    at_once = batches[start : start + _RENEW_AT_ONCE]
                    await asyncio.gather(*(self._renew_batch(grants, batch, states) for batch in at_once))

    async def _renew_batch(
        self, grants: Sequence[Grant], batch: Sequence[int], states: list[LeaseState]
    ) -> None:
        """Renew the grants with the indices in `batch`, by one script; writes their `states`."""
        claims = [grants[index].claim for index in batch]
        try:
            replies = await self._extend(claims)
        except BackendError:
            return
        for index, reply in zip(batch, replies, strict=True):
            states[index] = LeaseState.RENEWED if reply else LeaseState.LOST

    def _extend(self, claims: Sequence[Claim]) -> Coroutine[Any, Any, Any]:
        """Extend these leases by one script; 1 or 0 for each."""
        counter = self._counter
        counters = counter.renewed([claim.key for claim in claims])
        return self._server.run(counter.renew, claims[0].key, requests.renew(claims, counter.renew, counters))

    def _remember(self, owner: str, last_fence: int) -> None:
        fences = self._last_fences
        fences[owner] = last_fence
        if len(fences) > MOST_FENCES:
            fences.clear()

    async def _was_given_back(self, claim: Claim, doubt: OutcomeUnknown) -> bool:
        """Whether a release was carried out whose reply was lost, when the lock is not ours any more.

        It was if nobody else had it since: it is free, or our own process's next waiter has it.

        :raises OutcomeUnknown: somebody had, and perhaps before the release.
        :raises BackendError: the server failed.
        """
        last_fence = self._last_fences.pop(claim.owner, None)
        if last_fence is not None:
            request = requests.unclaimed(claim, last_fence, self.local_handoffs + 1)
            if await self._server.run(requests.UNCLAIMED, claim.key, request):
                return True
        raise doubt

    async def raise_fence(self, key: str, above: int) -> None:
        script = self._counter.raise_fence
        request = requests.raise_fence(key, above, script, self._counter.keys(key))
        await self._server.run(script, key, request)

    async def aclose(self) -> None:
        await self._record.aclose()
        await self._background.aclose()
        await self._server.aclose()
