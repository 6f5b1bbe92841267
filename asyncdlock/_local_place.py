"""One key of a LocalQueue: who has the turn, what the server granted, who waits behind."""

import asyncio
import math
import time
from collections import OrderedDict

from asyncdlock.types import Claim, Grant

NOBODY = Claim("", "", 0.0)

Waiter = tuple[Claim, "asyncio.Future[Grant | None]"]

# Of all places that nobody waits in, which are most: an empty one each is a tenth of a held lock's memory.
_EMPTY: OrderedDict[str, Waiter] = OrderedDict()


class LocalPlace:
    """One key of this process: who has the turn, what the server granted, who waits behind."""

    __slots__ = (
        "asking",
        "beside",
        "doubtful",
        "expires_at",
        "floor",
        "had_since",
        "hand_on_until",
        "holder",
        "remote",
        "timer",
        "used",
        "waiters",
    )

    def __init__(self, claim: Claim) -> None:
        self.waiters = _EMPTY
        """Read, and taken from; who comes is added by `add`."""
        self.timer: asyncio.TimerHandle | None = None
        self.asking = 0  # so many left the queue here together, and are not granted by the server yet
        self.had_since = 0.0  # without a pause in which others could have had it; 0: nobody waited yet
        self.floor = 0  # no fence up to this one may be handed on
        self.turn_of(claim)

    def add(self, claim: Claim, future: "asyncio.Future[Grant | None]") -> None:
        """Let `claim` wait behind all others."""
        if self.waiters is _EMPTY:
            self.waiters = OrderedDict()
        self.waiters[claim.owner] = claim, future

    def turn_of(self, claim: Claim) -> None:
        """`claim` may now speak to the server for this key."""
        self.holder = claim.owner
        self.remote: Grant | None = None
        self.used = 0
        self.beside = False  # somebody of this process waits on the server who came before the waiters here
        self.doubtful = False  # what the last renewal or a failed acquire left open
        self.expires_at = math.inf
        self.hand_on_until = -math.inf

    def may_hand_to(self, claim: Claim) -> bool:
        remote = self.remote
        return (
            remote is not None
            and self.used < remote.reserved
            and not self.doubtful
            and not self.beside
            and type(claim) is Claim
            and remote.fence + self.used >= self.floor
            and claim.ttl == remote.claim.ttl
            and time.monotonic() <= self.hand_on_until
        )
