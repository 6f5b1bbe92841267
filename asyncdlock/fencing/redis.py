"""A guard for values in Redis: comparing fences and writing are one step on the server.

A value and its marks are one hash, so `HGET key value` reads it from anywhere. Other programs write by the
same rule through a Redis Function: `python -m asyncdlock.fencing.redis | redis-cli -x FUNCTION LOAD REPLACE`,
then `FCALL fenced_put 1 key fence seq value` and `FCALL fenced_get 1 key fence`.
"""

import sys
import time
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncdlock.errors import StaleFence
from asyncdlock.fencing._check import check_fence, written_before
from asyncdlock.fencing._resource import UnknownOutcome

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

__all__ = ["FUNCTIONS", "FencedRedis", "FencedValue", "UnknownOutcome"]

_SOURCE = resources.files("asyncdlock.fencing").joinpath("fenced.lua").read_text("utf-8")
_PUT = f"{_SOURCE}\nreturn put(KEYS, ARGV)"
_GET = f"{_SOURCE}\nreturn get(KEYS, ARGV)"

FUNCTIONS = f"""#!lua name=asyncdlock_fencing
{_SOURCE}
redis.register_function('fenced_put', put)
redis.register_function('fenced_get', get)
"""
"""The same rule as a library of Redis Functions (Redis 7 or later)."""


class FencedValue(NamedTuple):
    """What a read found."""

    body: bytes | None
    """None: never written."""
    fence: int
    """The fence that it was written with."""
    max_fence: int
    """The highest fence that was seen, by a read or by a write."""


class FencedRedis:
    """Reads and writes values under the fence of a lock; `redis` stays the caller's.

    Whatever the client raises (`redis.exceptions.RedisError`) comes out as it is. After a lost reply the
    write may have happened; repeating it with the same fence and `seq` is safe, and redis-py does so by
    itself: the last 16 writes of a key are recognised, whoever has written since.
    """

    def __init__(self, redis: "Redis | RedisCluster") -> None:
        self._put = redis.register_script(_PUT)
        self._get = redis.register_script(_GET)

    async def put(self, key: str, body: bytes | str, *, fence: int, seq: int = 0) -> None:
        """Store `body`, unless a later holder of the lock has been here.

        A holder that writes more than once numbers its writes upwards with `seq`.

        :raises StaleFence: the lock has passed on; nothing was stored.
        :raises UnknownOutcome: the lock has passed on, and so much was written during this call that there
            is no way to tell whether the client sent this twice and the first one was stored.
        :raises LockError: this holder has written with that `seq`, or a higher one, before.
        :raises ValueError: not a fence.
        """
        check_fence(fence, seq)
        called = time.monotonic()
        said, *rest = await self._put(keys=[key], args=[str(fence), str(seq), body])
        match _text(said):
            case "stale":
                seen, forgotten_for = map(int, rest)
                # What is forgotten was written before this call: then all of this call's is remembered.
                if 0 <= forgotten_for <= (time.monotonic() - called) * 1000 + 1:
                    raise UnknownOutcome(key, seen=seen, got=fence)
                raise StaleFence(key, seen=seen, got=fence)
            case "behind":
                raise written_before(key, fence, int(rest[0]))

    async def get(self, key: str, *, fence: int | None = None) -> FencedValue:
        """The value. With a `fence`, older holders can no longer write once this returns.

        A read-modify-write is safe only if its read carries the fence as well.

        :raises StaleFence: the lock has passed on.
        :raises ValueError: not a fence.
        """
        if fence is not None:
            check_fence(fence)
        said, *rest = await self._get(keys=[key], args=[] if fence is None else [str(fence)])
        if _text(said) == "stale":
            raise StaleFence(key, seen=int(rest[0]), got=fence or 0)
        body, written, seen = rest
        return FencedValue(body.encode() if isinstance(body, str) else body, int(written), int(seen))


def _text(word: Any) -> str:
    """A word of the reply, whether or not the client decodes replies."""
    return word.decode() if isinstance(word, bytes) else str(word)


if __name__ == "__main__":
    sys.stdout.write(FUNCTIONS)
