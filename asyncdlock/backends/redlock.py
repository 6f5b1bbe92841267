"""redlock://: a majority of independent Redis nodes, and fences from a counter that the quorum keeps.

All nodes are asked at once, each by the plain recipe of `redis://`, and the lock is held when a
majority grants it and time is left: validity = TTL - elapsed - drift. A majority survives the loss
of a minority of nodes. It does not make the lock safe against pauses or clocks that jump; the
fence does.

The fence. Each granting node counts its own `fence:{key}` up. The highest answer c of the majority,
from node i, becomes the fence 16 c + i, and before the grant returns a majority stores a counter of
at least c. It follows:

- *Strictly increasing.* A later grant asks a majority, which shares a node with the majority that
  stored c. That node answers at least c + 1.
- *Unique*, even for two holders at once when clocks misbehave: node i hands out each c once.

What breaks the first: a node that forgets its counter (restart without persistence) takes itself out
of the majority that stored it. Then fences can go back until they pass the old ones; the resource
refuses them meanwhile. Safe, but stuck: see `LockClient.raise_fence`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from asyncdlock._backoff import jittered
from asyncdlock.backend import redact
from asyncdlock.backends.redis import requests
from asyncdlock.backends.redis.node import Node
from asyncdlock.backends.redis.requests import ACQUIRE, RAISE_FENCE, RELEASE, RENEW
from asyncdlock.backends.redis.url import RedisURL
from asyncdlock.errors import BackendError, BackendUnavailable, QuorumError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, validity

FENCE_SCALE = 16
_MOST_NODES = FENCE_SCALE - 1
_NODE_TIMEOUT = 0.25
_MIN_TTL = 0.5  # of which a node has a tenth to answer
_RENEW_CHUNK = 256
_LATE_TURNS = 3  # of the loop: one reads the sockets, one wakes the request, one ends it
_PATIENCE = 2.0


class RedlockBackend:
    """The Redlock algorithm on nodes that know nothing of each other."""

    name = "redlock"
    capabilities = Capabilities(
        fencing=True, fifo=False, push_wakeup=False, shared=True, min_ttl=_MIN_TTL, fence_floor=True
    )
    local_queue = False
    local_handoffs = 0

    def __init__(self, nodes: Sequence[Node], names: Sequence[str], *, node_timeout: float) -> None:
        self._nodes = nodes
        self._names = names
        self._node_timeout = node_timeout
        self._quorum = len(nodes) // 2 + 1
        self._requests: set[asyncio.Task[Any]] = set()

    @property
    def commands(self) -> int:
        return sum(node.commands for node in self._nodes)

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        silent_since: float | None = None
        for delay in jittered(0.005, 0.25):
            try:
                grant = await self.try_acquire(claim)
            except QuorumError:
                # Whoever waits has as much patience with a silent majority as `redis://` has with a
                # server that restarts.
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > _PATIENCE:
                    raise
            else:
                if grant is not None:
                    return grant
                silent_since = None
            await asyncio.sleep(delay)
        raise AssertionError("the delays never end")

    async def try_acquire(self, claim: Claim) -> Grant | None:
        await self._connect()
        sent = time.monotonic()
        asking = requests.acquire(claim, 1)
        ballot = await self._ask(
            lambda node: node.run(ACQUIRE, claim.key, asking),
            claim.ttl,
            yes=lambda reply: type(reply) is not list,
        )
        if ballot.carried:
            fence = await self._store_fence(claim, ballot.yes)
            # Counted from before the first request, and looked at last: whatever took long
            # above, a slow node or a pause of this process, has used up the lease.
            expires_at = sent + validity(claim.ttl)
            if time.monotonic() < expires_at:
                return Grant(claim, fence, expires_at)
        # Also what we believe not to have won may have been granted: release everywhere.
        await self._ask(self._releasing(claim), claim.ttl, yes=lambda _: True)
        if ballot.too_few_answers:
            raise ballot.error(f"no majority of {len(self._nodes)} Redis nodes answered")
        return None

    async def _connect(self) -> None:
        """Return when a majority is connected, or the time of one node is up.

        A lease begins with the request, not before it: opening a connection may take longer than a
        node has to answer.
        """
        if sum(node.wire.is_open for node in self._nodes) < self._quorum:
            await self._ask(lambda node: node.wire.ready(), math.inf, yes=lambda _: True)

    async def _store_fence(self, claim: Claim, granted: Sequence[tuple[int, Any]]) -> int:
        """The fence, once a majority remembers it.

        :raises QuorumError: too few nodes answered.
        """
        counter, node = max((int(reply), index) for index, reply in granted)
        remember = sum(int(reply) == counter for _, reply in granted)
        if remember < self._quorum:
            await self._raise_counters(claim.key, counter, claim.ttl)
        return counter * FENCE_SCALE + node

    async def _raise_counters(self, key: str, counter: int, ttl: float) -> None:
        raising = requests.raise_fence(key, counter)
        ballot = await self._ask(lambda node: node.run(RAISE_FENCE, key, raising), ttl, yes=lambda _: True)
        if not ballot.carried:
            raise ballot.error(f"no majority of {len(self._nodes)} Redis nodes stored the fence of {key!r}")

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        states: list[LeaseState] = []
        for start in range(0, len(grants), _RENEW_CHUNK):
            states += await self._renew_chunk([grant.claim for grant in grants[start : start + _RENEW_CHUNK]])
        return states

    async def _renew_chunk(self, claims: Sequence[Claim]) -> list[LeaseState]:
        renewing = requests.renew(claims)
        # No early decision: the answer of a majority may differ from lock to lock.
        ballot = await self._ask(
            lambda node: node.run(RENEW, claims[0].key, renewing),
            min(claim.ttl for claim in claims),
            yes=lambda _: True,
            everybody=True,
        )
        states = []
        for index in range(len(claims)):
            extended = sum(reply[index] for _, reply in ballot.yes)
            gone = len(ballot.yes) - extended
            if extended >= self._quorum:
                states.append(LeaseState.RENEWED)
            elif len(self._nodes) - gone < self._quorum:
                states.append(LeaseState.LOST)
            else:
                states.append(LeaseState.UNKNOWN)
        return states

    async def release(self, claim: Claim) -> bool:
        ballot = await self._ask(self._releasing(claim), claim.ttl, yes=bool)
        if ballot.carried:
            return True
        if ballot.too_few_answers:
            raise ballot.error(f"no majority of {len(self._nodes)} Redis nodes released {claim.key!r}")
        return False

    def _releasing(self, claim: Claim) -> Callable[[Node], Coroutine[Any, Any, Any]]:
        releasing = requests.release(claim)
        return lambda node: node.run(RELEASE, claim.key, releasing)

    async def raise_fence(self, key: str, above: int) -> None:
        await self._connect()
        # The next count gives at least (above // 16 + 1) * 16, which exceeds `above`.
        await self._raise_counters(key, above // FENCE_SCALE, math.inf)

    async def aclose(self) -> None:
        # A majority has answered; the releases of the others are still on their way.
        late = tuple(self._requests)
        if late:
            _, silent = await asyncio.wait(late, timeout=self._node_timeout)
            for task in silent:
                task.cancel()
            if silent:
                await asyncio.wait(silent)
        for node in self._nodes:
            await node.aclose()

    async def _ask(
        self,
        question: Callable[[Node], Coroutine[Any, Any, Any]],
        ttl: float,
        *,
        yes: Callable[[Any], bool],
        everybody: bool = False,
    ) -> "_Ballot":
        """Ask all nodes at once, until a majority agrees or cannot any more, or the time is up.

        A node gets a tenth of the TTL at most: one that is down must not use up the lease. A request
        to a slow node goes on in the background, also when this call is cancelled; the node's wire
        keeps order, so that a release arrives after it.
        """
        ballot = _Ballot(self._names, self._quorum)
        loop = asyncio.get_running_loop()
        asked = {loop.create_task(question(node)): index for index, node in enumerate(self._nodes)}
        for task in asked:
            self._requests.add(task)
            task.add_done_callback(self._done)
        waiting = set(asked)
        deadline = time.monotonic() + min(self._node_timeout, ttl / 10)
        while waiting and (everybody or not ballot.decided):
            left = max(0.0, deadline - time.monotonic())
            done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                # What arrived while the loop was busy is there in time, and was not read yet.
                for _ in range(_LATE_TURNS):
                    await asyncio.sleep(0)
                done = {task for task in waiting if task.done()}
                waiting -= done
            for task in done:
                ballot.count(asked[task], task, yes)
            if not done:
                # Silent until the end; those of whom we did not wait for an answer are not.
                for task in waiting:
                    ballot.silent(asked[task])
                break
        return ballot

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the ballot has counted it, or is closed


class _Ballot:
    """What the nodes have answered so far."""

    __slots__ = ("_names", "_quorum", "failures", "no", "yes")

    def __init__(self, names: Sequence[str], quorum: int) -> None:
        self._names = names
        self._quorum = quorum
        self.yes: list[tuple[int, Any]] = []
        self.no = 0
        self.failures: list[Exception] = []

    def count(self, index: int, task: "asyncio.Task[Any]", yes: Callable[[Any], bool]) -> None:
        error = task.exception()
        if isinstance(error, BackendError):
            self.failures.append(type(error)(f"{self._names[index]}: {error}", definite=error.definite))
        elif error is not None:
            raise error
        elif yes(task.result()):
            self.yes.append((index, task.result()))
        else:
            self.no += 1

    def silent(self, index: int) -> None:
        self.failures.append(BackendUnavailable(f"{self._names[index]}: no answer in time"))

    @property
    def carried(self) -> bool:
        return len(self.yes) >= self._quorum

    @property
    def decided(self) -> bool:
        return self.carried or len(self._names) - self.no - len(self.failures) < self._quorum

    @property
    def too_few_answers(self) -> bool:
        """The failures alone rule a majority out; a split vote is contention, not failure."""
        return len(self._names) - len(self.failures) < self._quorum

    def error(self, message: str) -> QuorumError:
        return QuorumError(message, self.failures)


def from_url(url: str, **options: Any) -> RedlockBackend:
    """The backend behind `redlock://h1:p1,h2:p2,h3:p3[/db]`, for 1 to 15 nodes."""
    where = RedisURL.parse(
        url.replace("redlock", "redis", 1),
        {"topology": "independent", **options},
        known={"node_timeout": float},
    )
    # The order of the nodes is part of the fence: it must not depend on how the URL is written.
    hosts = sorted(set(where.hosts))
    if len(hosts) != len(where.hosts):
        raise ValueError(f"a node stands twice in {redact(url)!r}: a majority needs different nodes")
    if len(hosts) > _MOST_NODES:
        raise ValueError(f"redlock:// takes at most {_MOST_NODES} nodes, not {len(hosts)}")
    # No patience with a node that is down: the majority is what bridges it.
    nodes = [Node(where.opener_to(host, port), reconnect_for=0.0, **where.wire) for host, port in hosts]
    names = [f"{host}:{port}" for host, port in hosts]
    return RedlockBackend(nodes, names, node_timeout=where.ours.get("node_timeout", _NODE_TIMEOUT))
