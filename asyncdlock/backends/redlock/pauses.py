"""How long a contender waits before it asks the nodes again.

Two things can have been in its way:

- *Somebody holds the lock.* All nodes are asked again after pauses that double, as on one Redis. In between
  one of them is looked at, if the client's other contenders queue behind this one.
- *The votes were split*: it got some, but no majority, so at that moment others asked too, or let go. Perhaps
  nobody holds it, and all that matters is that the next requests do not cross again: the pauses are jittered
  over a few round trips, however near or far the nodes are.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.keys import lock_name
from asyncdlock.backends.redis.stream import pack
from asyncdlock.backends.redlock.member import Member

_FIRST, _LONGEST = 0.005, 0.25
_TRIPS = 4.0
"""Round trips within which a contender comes back after its first split vote; the next span is twice that."""
_LEAST = 0.0005
_LOOK = 0.02
_WEIGHT = 0.2  # of a new round trip in the average


class RoundTrip:
    """How long the nodes take to answer a request, on the average."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds: float = 0.0

    def note(self, seconds: float) -> None:
        """A round took so long."""
        self.seconds += (seconds - self.seconds) * (_WEIGHT if self.seconds else 1.0)


class Pauses:
    """The pauses of one contender."""

    __slots__ = ("_held", "_round_trip", "_split")

    def __init__(self, round_trip: RoundTrip) -> None:
        self._round_trip = round_trip
        self._held: Iterator[float] = jittered(_FIRST, _LONGEST)
        self._split: Iterator[float] | None = None

    def when_held(self) -> float:
        """Somebody has the lock, or nobody can tell."""
        self._split = None
        return next(self._held)

    def when_split(self) -> float:
        """Others asked at the same time."""
        if self._split is None:
            first = max(_LEAST, _TRIPS * self._round_trip.seconds)
            self._split = jittered(first, max(first, _LONGEST))
        return next(self._split)

    def until_look(self) -> float:
        """Until one node is looked at again."""
        step = max(_LOOK, _TRIPS * self._round_trip.seconds)
        return random.uniform(step / 2, step)


async def look_out(members: Sequence[Member], key: str, pauses: Pauses, until: float) -> None:
    """Wait until then, or until one of the nodes says that the lock is free.

    A look costs a tenth of asking all nodes and giving back, so there may be more of them. It takes no votes.
    """
    question = pack(("GET", lock_name(key)))
    while (left := until - time.monotonic()) > 0:
        pause = pauses.until_look()
        await asyncio.sleep(min(left, pause))
        nodes = [member for member in members if member.is_open and not member.silent]
        if left <= pause or not nodes:
            continue
        answer = random.choice(nodes).send(question)
        try:
            await asyncio.wait((answer,), timeout=until - time.monotonic())
        finally:
            answer.cancel()
        if not answer.cancelled() and (answer.exception() is not None or answer.result() is None):
            return
