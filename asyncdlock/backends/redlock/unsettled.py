"""Releases that could not find out whether the lock was owned, and what the nodes answered."""

import time
from typing import NamedTuple

from asyncdlock.types import Claim


class GivenBack(NamedTuple):
    """What is known after such a release."""

    yes: set[int]
    """The nodes that held it, and do so no longer."""
    no: set[int]
    """The nodes that certainly did not hold it. Of the rest a later "no" proves nothing."""
    until: float


class Unsettled:
    """By owner; each is kept for its TTL."""

    def __init__(self) -> None:
        self._known: dict[str, GivenBack] = {}

    def pop(self, owner: str) -> GivenBack | None:
        return self._known.pop(owner, None) if self._known else None

    def remember(self, claim: Claim, yes: set[int], no: set[int]) -> None:
        now = time.monotonic()
        self._known[claim.owner] = GivenBack(yes, no, now + claim.ttl)
        while (oldest := next(iter(self._known))) != claim.owner and self._known[oldest].until < now:
            del self._known[oldest]
