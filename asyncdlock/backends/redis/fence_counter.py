"""Where the fences of locks in Redis come from: `fence_counter=per-key|per-shard|expiring`.

| kind        | a fence is                                         | what stays on the server             |
|-------------|----------------------------------------------------|--------------------------------------|
| `per-key`   | one more than the last of its key                  | a counter for every key, for ever    |
| `per-shard` | one more than the last of its Cluster slot         | at most 16,384 counters              |
| `expiring`  | one more than the last of its key, or the server's | nothing: when a counter is forgotten |
|             | time in µs, whichever is higher                    | the clock is further                 |

Under each of them `fence:{key}` is the last fence of the key. Unless it stays, it outlasts the lease by
`life`.
"""

from collections.abc import Callable
from functools import lru_cache

from asyncdlock.backends.redis import requests
from asyncdlock.backends.redis.keys import fence_key, lock_name, shard_key
from asyncdlock.backends.redis.requests import milliseconds, terms
from asyncdlock.backends.redis.scripts import Script, words
from asyncdlock.types import Claim

PER_KEY = "per-key"
_NUMBERED = {"per-shard": "per_shard.lua", "expiring": "expiring.lua"}
_LIFE = 600.0
_LEAST_LIFE = 1.0
_LONGEST_LIFE = 365 * 86_400.0


class FenceCounter:
    """One of these kinds, and the scripts that depend on it. Made by `fence_counter`."""

    __slots__ = ("_first", "acquire", "acquire_request", "kind", "raise_fence", "renew")

    def __init__(self, kind: str, life: float) -> None:
        self.kind: str = kind
        self._first = "" if self.stays else f"local LIFE = {milliseconds(life)}"
        self.acquire: Script = requests.ACQUIRE
        self.acquire_request: Callable[[Claim, int], bytes] = requests.acquire
        self.raise_fence: Script = requests.RAISE_FENCE
        self.renew: Script = requests.RENEW
        if not self.stays:
            self.acquire = self._script("below.lua", _NUMBERED[kind], "acquire.lua", "acquire_number.lua")
            self.acquire_request = self._numbered
            self.raise_fence = self._script("below.lua", _NUMBERED[kind], "raise_fence.lua")
            self.renew = self.renewing("renew.lua")

    @property
    def stays(self) -> bool:
        """Whether every key has a counter of its own, for ever."""
        return self.kind == PER_KEY

    def keys(self, key: str) -> tuple[str, ...]:
        """The shard's counter, if there is one: the last of the KEYS of every script that counts."""
        return (shard_key(key),) if self.kind == "per-shard" else ()

    def granting(self, *names: str, lifts: bool = False, once: bool = False) -> Script:
        """A script of these files that uses `grant` and, with `lifts`, `lift`."""
        if self.stays:
            return Script(*(("below.lua", "lift.lua") if lifts else ()), "grant.lua", *names, once=once)
        return self._script("below.lua", _NUMBERED[self.kind], "grant_number.lua", *names, once=once)

    def renewing(self, *names: str) -> Script:
        """A script of these files that uses `outlast`, where counters expire."""
        return Script(*names) if self.stays else self._script("outlast.lua", *names)

    def renewed(self, keys: list[str]) -> list[str]:
        """The counters that are to outlast the leases of these keys."""
        return [] if self.stays else [fence_key(key) for key in keys]

    def _script(self, *names: str, once: bool = False) -> Script:
        return Script(*names, first=self._first, once=once)

    def _numbered(self, claim: Claim, fences: int) -> bytes:
        key, owner, ttl = claim
        names = lock_name(key), fence_key(key), *self.keys(key)
        start = self.acquire.start(len(names) + 4)
        ends = f"${len(owner)}\r\n{owner}\r\n{terms(ttl, fences)}"
        return f"{start}{words(len(names), *names)}{ends}".encode("latin-1")


@lru_cache(maxsize=64)
def fence_counter(kind: str = PER_KEY, life: float | None = None) -> FenceCounter:
    """The counters of this kind; `life` is for those that do not stay.

    :raises ValueError: there is no such kind, or it has no such life.
    """
    if kind != PER_KEY and kind not in _NUMBERED:
        raise ValueError(f"fence_counter must be one of {', '.join((PER_KEY, *_NUMBERED))}, not {kind!r}")
    if life is not None and kind == PER_KEY:
        raise ValueError("fence_life is for counters that do not stay: fence_counter=per-shard or expiring")
    if life is not None and not _LEAST_LIFE <= life <= _LONGEST_LIFE:
        raise ValueError(f"fence_life must be {_LEAST_LIFE:g} s to a year, not {life:g}")
    return FenceCounter(kind, _LIFE if life is None else life)
