"""Frozen data: what a caller asks for, what a backend grants, what a backend can do."""

import enum
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

from asyncdlock import _process

MAX_KEY_BYTES = 1024
SESSION_CHARS = 23

# A lease is trusted for less than its TTL: the server's clock and ours may run at different
# rates. One percent and two milliseconds is the allowance that the Redlock specification uses.
_DRIFT_FACTOR = 0.01
_DRIFT_FLOOR = 0.002


def validity(ttl: float) -> float:
    """How long a lease of `ttl` seconds may be relied on, counted from *before* it was requested."""
    return ttl - ttl * _DRIFT_FACTOR - _DRIFT_FLOOR


RENEWED_WITHIN = 0.3
"""Of the shortest TTL: by then a backend says of many leases what it knows; soon it is not waited for."""


# Claim and Grant are tuples and not dataclasses because one of each is built per acquisition:
# a frozen dataclass costs three times as much to construct.


class Claim(NamedTuple):
    """One attempt to take a lock: made before any I/O, so that clean-up never needs a reply."""

    key: str
    owner: str
    ttl: float

    @property
    def session(self) -> str:
        """The part of the owner that all claims of one client share."""
        return self.owner[:SESSION_CHARS]

    def again(self, owner: str) -> "Claim":
        """A new attempt of the same kind."""
        return Claim(self.key, owner, self.ttl)


class SharedClaim(Claim):
    """An attempt to hold a key together with others: as a reader, or with a permit of a semaphore.

    It has the same three fields, so that code which unpacks a claim also works with this one, and a type of
    its own, so that it costs a plain lock only one comparison. Only a backend whose capabilities say `shared`
    or `semaphore` gets one.
    """

    permits: int
    """How many may hold the key at once; 0 for a reader, of which there may be any number."""

    def __new__(cls, key: str, owner: str, ttl: float, permits: int = 0) -> "SharedClaim":
        """The three fields of every claim, and how many may hold the key at once."""
        claim = super().__new__(cls, key, owner, ttl)
        claim.permits = permits
        return claim

    def again(self, owner: str) -> "SharedClaim":
        """A new attempt of the same kind."""
        return SharedClaim(self.key, owner, self.ttl, self.permits)


class Grant(NamedTuple):
    """A claim that won.

    `expires_at` is in `time.monotonic()` seconds, counted from before the winning request was
    sent. It is not `loop.time()`: uvloop freezes that clock for as long as a callback runs, so a
    stalled event loop would believe its lease alive.
    """

    claim: Claim
    fence: int
    expires_at: float
    reserved: int = 0
    """Further fences `fence+1 … fence+reserved` belong to this grant, for local hand-off."""


# For the hot path, in a third of the time: `Claim(…)` and `Grant(…)` go through a Python function that sorts
# out their arguments.
new_claim: Callable[[tuple[str, str, float]], Claim] = partial(tuple.__new__, Claim)
new_grant: Callable[[tuple[Claim, int, float, int]], Grant] = partial(tuple.__new__, Grant)


class NamedOwner(str):
    """An owner with a label of its own, from `acquire(label=…)`. All others are plain `str`."""

    label: str

    @classmethod
    def of(cls, owner: str, label: str) -> "NamedOwner":
        """`owner` with the label that `inspect` shows beside it."""
        named = cls(owner)
        named.label = label
        return named


def label_of(owner: str) -> str | None:
    """The label that was chosen for this owner; `None` if its client's label applies."""
    return owner.label if type(owner) is NamedOwner else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A waiter for a lock, as `LockClient.inspect` found it."""

    owner: str | None
    """`None` for a waiter of another program, which gives its waiters no name."""
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInfo:
    """A lock at one moment, as `LockClient.inspect` found it. What cannot be known is `None`."""

    key: str
    held: bool
    owner: str | None = None
    """Of the holder. The server knows tasks that pass a lock on within their process by the first of them."""
    label: str | None = None
    """What the holder calls itself: `host:pid` unless it chose another label."""
    since: float | None = None
    """When it was granted, in seconds since the epoch."""
    lease_left: float | None = None
    """Seconds until the lease ends unless it is renewed."""
    fence: int | None = None
    """Of the grant; tasks that pass a lock on within their process use the next ones, up to `last_fence`."""
    last_fence: int | None = None
    """The highest fence that the holder's process may use: every later grant of the server is above it."""
    beside: tuple[Waiter, ...] = ()
    """Who else holds it at the same time: readers, or the holders of a semaphore's permits."""
    waiters: tuple[Waiter, ...] = ()
    """In the order in which they will be served, as far as there is one."""


def holding_together(permits: Sequence[int | None]) -> int:
    """How many at the head of a queue hold it; each asked for it alone (`None`) or as one of N (0: any)."""
    if not permits or permits[0] is None:
        return min(1, len(permits))
    for index, most in enumerate(permits):
        if most is None or (most and index >= most):
            return index
    return len(permits)


class LeaseState(enum.Enum):
    """What a renewal found out."""

    RENEWED = "renewed"
    LOST = "lost"
    UNKNOWN = "unknown"
    """No answer in time: the lease may still exist or not, so nothing may be extended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend promises."""

    fencing: bool
    """Every grant carries a fence, strictly increasing per key."""
    fifo: bool
    """Waiters are served in the order in which the server saw them."""
    push_wakeup: bool
    """A release wakes the next waiter; nobody polls."""
    interprocess: bool
    """Excludes other processes, not only tasks of this one."""
    min_ttl: float
    """The shortest `ttl` that the backend accepts, in seconds."""
    ttl_step: float = 0.0
    """`ttl` must be a multiple of this, in seconds; 0 takes any."""
    fence_floor: bool = False
    """`LockClient.raise_fence` can raise the counter above what a resource has seen."""
    shared: bool = False
    """Many readers or one writer: `acquire(key, shared=True)`."""
    semaphore: bool = False
    """At most N at a time: `LockClient.semaphore`."""
    inspection: bool = False
    """`LockClient.inspect`, `force_release` and `keys` work."""
    once: bool = False
    """`LockClient.once` works: each key has a counter of its own, which stays and remembers the last tick."""


_THREE_DIGITS = [f"{number:03x}" for number in range(16**3)]


def owners() -> Iterator[str]:
    """Owner identifiers without end: UUIDs that share a random prefix, the session, and count upwards.

    120 random-looking bits a call would cost more than the rest of building a claim; uniqueness
    needs them once per client only. The common prefix also lets a server-side script know which
    process waits behind an owner.
    """
    forks = -1
    while True:
        if forks != _process.forks:  # a child must not draw what its parent draws
            forks = _process.forks
            digits = os.urandom(9).hex()
            # Version 8 ("vendor specific" in RFC 9562), variant 8.
            session = f"{digits[:8]}-{digits[8:12]}-8{digits[12:15]}-8{digits[15:18]}"
            numbers = count()
        start = f"{session}-{next(numbers):09x}"
        for end in _THREE_DIGITS:
            if forks != _process.forks:
                break
            yield start + end
