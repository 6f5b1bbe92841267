"""The Redlock algorithm: ask all nodes, count their votes, and make a fence that the quorum remembers.

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
from collections.abc import Sequence

from asyncdlock.backends.redis import requests
from asyncdlock.backends.redis.background import Background
from asyncdlock.backends.redis.client_record import ClientRecord
from asyncdlock.backends.redis.replies import foreign_data
from asyncdlock.backends.redlock.ballot import (
    EXTEND,
    GIVE_BACK,
    GIVE_BACK_REST,
    RAISE,
    TAKE,
    UNDO,
    Ballot,
    Question,
)
from asyncdlock.backends.redlock.inspection import Everywhere, InspectedRedlock
from asyncdlock.backends.redlock.member import Member
from asyncdlock.backends.redlock.pauses import Pauses, RoundTrip, look_out
from asyncdlock.backends.redlock.unsettled import Unsettled
from asyncdlock.backends.redlock.waits import Waits
from asyncdlock.errors import QuorumError
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, new_grant, validity

FENCE_SCALE = 16
MOST_NODES = FENCE_SCALE - 1
_MIN_TTL = 0.5  # of which a node has a tenth to answer
_RENEW_CHUNK = 256
_PATIENCE = 2.0


class RedlockBackend(InspectedRedlock):
    """The Redlock algorithm on nodes that know nothing of each other."""

    name = "redlock"
    capabilities: Capabilities = Capabilities(
        fencing=True,
        fifo=False,
        push_wakeup=False,
        interprocess=True,
        min_ttl=_MIN_TTL,
        fence_floor=True,
        once=True,
        inspection=True,
    )
    local_handoffs = 0

    def __init__(
        self,
        members: Sequence[Member],
        *,
        node_timeout: float,
        connect_timeout: float,
        local_queue: bool = True,
    ) -> None:
        self.local_queue = local_queue
        self._members = members
        self._connect_timeout = connect_timeout
        self._node_timeout = node_timeout
        self._quorum = len(members) // 2 + 1
        self._background = Background()
        self._record = ClientRecord(Everywhere(members), self._background, fences=1)
        self._had_majority = False
        self._round_trip = RoundTrip()
        # The last request of each claim that not every node has answered.
        self._latest: dict[str, Ballot] = {}
        self._unsettled = Unsettled()
        self._waits = Waits()

    @property
    def _is_connected(self) -> bool:
        return sum([member.is_open for member in self._members]) >= self._quorum

    @property
    def commands(self) -> int:
        return sum(member.commands for member in self._members)

    # Taking

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        silent_since: float | None = None
        pauses = Pauses(self._round_trip)
        while True:
            try:
                outcome = await self._stand(claim)
            except QuorumError:
                # Whoever waits has as much patience with a silent majority as `redis://` has with a
                # server that restarts.
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > _PATIENCE:
                    raise
                pause = pauses.when_held()
            else:
                if type(outcome) is Grant:
                    return outcome
                silent_since = None
                pause = pauses.when_split() if outcome else pauses.when_held()
            if self.local_queue:
                await look_out(self._members, claim.key, pauses, time.monotonic() + pause)
            else:
                await asyncio.sleep(pause)

    async def try_acquire(self, claim: Claim) -> Grant | None:
        outcome = await self._stand(claim)
        return outcome if type(outcome) is Grant else None

    async def _stand(self, claim: Claim) -> Grant | int:
        """Ask every node for its vote: the grant, or how many votes it got that were not enough.

        :raises QuorumError: too few nodes answered.
        """
        # A lease begins with the request: opening a connection may take longer than a node has to answer.
        if not self._is_connected:
            await self._connect(claim.ttl)
        if claim.ttl != self._record.ttl or type(claim.owner) is not str:
            self._record.tell(claim)
        sent = time.monotonic()
        ballot = await self._ask(TAKE, requests.acquire(claim, 1), claim.ttl, claim.owner)
        if ballot.carried:
            fence = await self._store_fence(claim, ballot)
            # Counted from before the first request, and looked at last: whatever took long
            # above, a slow node or a pause of this process, has used up the lease.
            expires_at = sent + validity(claim.ttl)
            if time.monotonic() < expires_at:
                return new_grant((claim, fence, expires_at, 0))
        elif not ballot.failures:
            self._round_trip.note(time.monotonic() - sent)
        # Also what we believe not to have won may have been granted: release everywhere.
        await self._ask(UNDO, requests.release(claim), claim.ttl, claim.owner)
        if ballot.too_few_answers:
            if ballot.foreign:
                raise foreign_data(claim.key, ballot.foreign, definite=False)
            raise ballot.error(f"no majority of {len(self._members)} Redis nodes answered")
        return len(ballot.yes)

    async def _store_fence(self, claim: Claim, granted: Ballot) -> int:
        """The fence, once a majority remembers it.

        :raises QuorumError: too few nodes answered.
        """
        counter, node = max((int(reply), index) for index, reply in granted.yes)
        remember = sum(int(reply) == counter for _, reply in granted.yes)
        if remember < self._quorum:
            await self._raise_counters(claim.key, counter, claim.ttl)
        return counter * FENCE_SCALE + node

    async def raise_fence(self, key: str, above: int) -> None:
        await self._connect(math.inf)
        # The next count gives at least (above // 16 + 1) * 16, which exceeds `above`.
        await self._raise_counters(key, above // FENCE_SCALE, math.inf)

    async def _raise_counters(self, key: str, counter: int, ttl: float) -> None:
        ballot = await self._ask(RAISE, requests.raise_fence(key, counter), ttl)
        if not ballot.carried:
            raise ballot.error(f"no majority of {len(self._members)} Redis nodes stored the fence of {key!r}")

    # Holding

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        states: list[LeaseState] = []
        self._record.tell_since(grants)
        for start in range(0, len(grants), _RENEW_CHUNK):
            states += await self._renew_chunk([grant.claim for grant in grants[start : start + _RENEW_CHUNK]])
        return states

    async def _renew_chunk(self, claims: Sequence[Claim]) -> list[LeaseState]:
        ttl = min(claim.ttl for claim in claims)
        await self._connect(ttl)
        # Unless a majority has extended all of them, the answer may differ from lock to lock.
        ballot = await self._ask(EXTEND, requests.renew(claims), ttl)
        replies = [reply for _, reply in (*ballot.yes, *ballot.no)]
        return [
            self._lease_state(sum(reply[index] for reply in replies), len(replies))
            for index in range(len(claims))
        ]

    def _lease_state(self, extended: int, answers: int) -> LeaseState:
        if extended >= self._quorum:
            return LeaseState.RENEWED
        if len(self._members) - (answers - extended) < self._quorum:
            return LeaseState.LOST
        return LeaseState.UNKNOWN

    # Giving back

    async def release(self, claim: Claim) -> bool:
        """As the protocol says: owned means by a majority.

        :raises QuorumError: the answers leave open whether it was. What the nodes said is remembered, so that
            calling again can find out.
        """
        await self._connect(claim.ttl)
        if self._record.noted and claim.owner in self._record.noted:
            self._record.forget(claim.owner)
        earlier = self._unsettled.pop(claim.owner)
        question = GIVE_BACK if earlier is None else GIVE_BACK_REST
        ballot = await self._ask(question, requests.release(claim), claim.ttl, claim.owner)
        if ballot.too_few_answers:
            await ballot.decided(
                self._waits, _PATIENCE
            )  # there is no lease any more that waiting could use up
        yes = {index for index, _ in ballot.yes}
        no = {index for index, _ in ballot.no}
        if earlier is not None:
            yes, no = yes | earlier.yes, earlier.no
        if len(yes) >= self._quorum:
            return True
        if len(self._members) - len(no) < self._quorum:
            return False
        self._unsettled.remember(claim, yes, no)
        raise ballot.error(
            f"too few Redis nodes can tell whether {claim.key!r} was still owned when it was released"
        )

    async def force_release(self, key: str, above: int) -> bool:
        """As the protocol says: first a majority raises its counters, then it lets go.

        :raises QuorumError: too few nodes answered.
        """
        seen = await self._seen(key)
        # The counter of a granted fence was stored by a majority, so one of these has it.
        counter = max(one.last_fence for one in seen)
        await self._raise_counters(key, max(counter, above // FENCE_SCALE) + 1, math.inf)
        holder = self._holder(seen)
        if holder:
            ballot = await self._ask(UNDO, requests.release(Claim(key, holder, math.inf)), math.inf)
            if not ballot.carried:
                raise ballot.error(f"no majority of {len(self._members)} Redis nodes gave {key!r} back")
        return bool(holder)

    async def aclose(self) -> None:
        # A majority has answered; the releases of the others are still on their way.
        deadline = time.monotonic() + self._node_timeout
        for ballot in tuple(self._latest.values()):
            await ballot.complete(max(0.0, deadline - time.monotonic()))
        await self._record.aclose()
        await self._background.aclose()
        for member in self._members:
            await member.aclose()
        self._waits.close()

    # Asking

    async def _connect(self, ttl: float) -> None:
        """Return when a majority is connected, or could not be reached in time."""
        if self._is_connected:
            return
        # The first connections are not counted against any lease.
        within = min(self._node_timeout, ttl / 10) if self._had_majority else self._connect_timeout
        deadline = time.monotonic() + within
        dialling = {member.dial() for member in self._members if not member.is_open}
        while dialling and not self._is_connected:
            left = max(0.0, deadline - time.monotonic())
            done, dialling = await asyncio.wait(dialling, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
        self._had_majority = self._is_connected

    async def _ask(self, question: Question, request: bytes, ttl: float, owner: str = "") -> Ballot:
        """Send `request` to all nodes, and return when their answers settle it or the time is up.

        A node gets a tenth of the TTL at most: one that is down must not use up the lease.
        """
        if owner and (earlier := self._latest.pop(owner, None)) is not None:
            earlier.superseded = True
        ballot = Ballot(self._members, self._quorum, question, request, owner, self._forget)
        if owner and not ballot.finished:
            self._latest[owner] = ballot
        await ballot.decided(self._waits, min(self._node_timeout, ttl / 10))
        return ballot

    def _forget(self, ballot: Ballot) -> None:
        if self._latest.get(ballot.owner) is ballot:
            del self._latest[ballot.owner]
