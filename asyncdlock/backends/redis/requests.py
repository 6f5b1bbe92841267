"""What follows a script's name in a request: the number of keys, the keys and the ARGV.

Redis takes a count and that many bulk strings, `$<length>` and the bytes. They are put together as text of
one character a byte; those that every lock cycle needs as one f-string each, because packing them word by
word takes three times as long.
"""

from collections.abc import Sequence

from asyncdlock.backends.redis.keys import fence_key, tagged
from asyncdlock.types import Claim

Arguments = tuple[int, str]
"""How many bulk strings, and their text."""


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, rounded down: `validity` leaves room for more than that."""
    return int(seconds * 1000)


def octets(text: str) -> str:
    """The UTF-8 bytes of `text`, a character each, so that its length is the one that Redis wants."""
    return text if text.isascii() else text.encode().decode("latin-1")


def bulk(*words: str | int) -> Arguments:
    """Any words."""
    strings = [octets(str(word)) for word in words]
    return len(strings), "".join([f"${len(string)}\r\n{string}\r\n" for string in strings])


def acquire(claim: Claim, fences: int) -> Arguments:
    """For acquire.lua."""
    key, owner, ttl = claim
    lock = octets(key)
    tag = tagged(lock)
    lasts, taken = str(milliseconds(ttl)), str(fences)
    return 6, (
        f"$1\r\n2\r\n${len(lock)}\r\n{lock}\r\n${len(tag) + 6}\r\nfence:{tag}\r\n"
        f"${len(owner)}\r\n{owner}\r\n${len(lasts)}\r\n{lasts}\r\n${len(taken)}\r\n{taken}\r\n"
    )


def release(claim: Claim) -> Arguments:
    """For release.lua."""
    key, owner, _ = claim
    lock = octets(key)
    return 3, f"$1\r\n1\r\n${len(lock)}\r\n{lock}\r\n${len(owner)}\r\n{owner}\r\n"


def renew(claims: Sequence[Claim]) -> Arguments:
    """For renew.lua."""
    return bulk(
        len(claims),
        *[claim.key for claim in claims],
        *[claim.owner for claim in claims],
        *[milliseconds(claim.ttl) for claim in claims],
    )


def raise_fence(key: str, above: int) -> Arguments:
    """For raise_fence.lua."""
    return bulk(1, fence_key(key), above)
