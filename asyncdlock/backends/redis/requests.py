"""The requests of the plain recipe, as bytes in Redis's protocol.

Redis takes a count and that many words, each as `$<length>` and its bytes. The two requests of a lock cycle
are written out, as text of one character a byte: to pack them word by word takes three times as long.
"""

from collections.abc import Sequence
from functools import lru_cache

from asyncdlock.backends.redis.keys import fence_key, lock_name, stem
from asyncdlock.backends.redis.scripts import Script, octets, words
from asyncdlock.types import Claim

ACQUIRE = Script("acquire.lua", "acquire_count.lua")
RELEASE = Script("release.lua", once=True)
UNCLAIMED = Script("unclaimed.lua")
RENEW = Script("renew.lua")
RAISE_FENCE = Script("below.lua", "lift.lua", "raise_fence.lua")

_ACQUIRE = ACQUIRE.start(6) + "$1\r\n2\r\n"
_RELEASE = RELEASE.start(3) + "$1\r\n1\r\n"


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, rounded down: `validity` leaves room for more than that."""
    return int(seconds * 1000)


@lru_cache(maxsize=256)
def terms(ttl: float, fences: int | str) -> str:
    """The TTL in milliseconds and how many fences to take: the same two words for most locks of a program."""
    return words(milliseconds(ttl), fences)


def acquire(claim: Claim, fences: int) -> bytes:
    key, owner, ttl = claim
    lock = key if key.isascii() else octets(key)
    tag = f"{{{lock}}}"
    if "}" in lock:
        tag, lock = octets(stem(key)), octets(lock_name(key))
    return (
        f"{_ACQUIRE}${len(lock)}\r\n{lock}\r\n${len(tag) + 6}\r\nfence:{tag}\r\n"
        f"${len(owner)}\r\n{owner}\r\n{terms(ttl, fences)}"
    ).encode("latin-1")


def release(claim: Claim) -> bytes:
    key, owner, _ = claim
    lock = key if key.isascii() else octets(key)
    if "}" in lock:
        lock = octets(lock_name(key))
    return f"{_RELEASE}${len(lock)}\r\n{lock}\r\n${len(owner)}\r\n{owner}\r\n".encode("latin-1")


def unclaimed(claim: Claim, last_fence: int, fences: int) -> bytes:
    names = lock_name(claim.key), fence_key(claim.key)
    return UNCLAIMED.request(2, *names, last_fence, claim.session, last_fence + fences)


def renew(claims: Sequence[Claim], script: Script = RENEW, counters: Sequence[str] = ()) -> bytes:
    return script.request(
        len(claims) + len(counters),
        *[lock_name(claim.key) for claim in claims],
        *counters,
        *[claim.owner for claim in claims],
        *[milliseconds(claim.ttl) for claim in claims],
    )


def raise_fence(key: str, above: int, script: Script = RAISE_FENCE, shard: Sequence[str] = ()) -> bytes:
    return script.request(2 + len(shard), lock_name(key), fence_key(key), *shard, above)
