"""Ways to number the grants of a lock in Redis, each one script, and how to send many of them.

Every script takes the lock and its fence in one step, as the library's does. KEYS: lock, counter.
ARGV: owner, ttl of the lock in ms, ttl of the counter in ms. Each returns the fence.
"""

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.lab.scale.fill import BATCH
from harness.lab.scale.pipe import Pipe, command

SHARDS = 1024
COUNTER_TTL_MS = 1000
"""How long an expiring counter outlives the last grant that used it."""

_TAKE = "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end\n"
_COUNT = _TAKE + "return redis.call('INCR', KEYS[2])"
# TIME in microseconds stays below 2^53 until the year 2255: exact in Lua's doubles, hence `%d`-safe.
_CLOCK = (
    _TAKE
    + "local t = redis.call('TIME')\n"
    + "local now = t[1] * 1000000 + t[2]\n"
    + "local last = tonumber(redis.call('GET', KEYS[2]) or '0')\n"
    + "local fence = math.max(last + 1, now)\n"
    + "redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3])\n"
    + "return fence"
)


@dataclass(frozen=True, slots=True)
class Numbering:
    name: str
    script: str
    counter_of: Callable[[str], str]
    survives_loss: bool
    """Are fences still above the old ones when the counter was lost with all data?"""
    stays: bool
    """Is there a counter for every key that was ever locked, for ever?"""


def _shard(key: str) -> str:
    return f"fence-shard:{zlib.crc32(key.encode()) % SHARDS}"


NUMBERINGS = (
    Numbering("per key", _COUNT, lambda key: f"fence:{{{key}}}", survives_loss=False, stays=True),
    Numbering("per shard", _COUNT, _shard, survives_loss=False, stays=False),
    Numbering("per key, expiring", _CLOCK, lambda key: f"fence:{{{key}}}", survives_loss=True, stays=False),
)


async def take(pipe: Pipe, numbering: Numbering, key: str, *, ttl_ms: int = 60_000) -> int:
    """One acquisition; the fence, or 0 when the lock is held."""
    words = ("EVAL", numbering.script, 2, key, numbering.counter_of(key), "owner", ttl_ms, COUNTER_TTL_MS)
    return int(await pipe.ask(*words))


async def take_many(pipe: Pipe, numbering: Numbering, keys: int, *, ttl_ms: int) -> float:
    """Lock so many keys, each once; returns how many per second. `keys` is a multiple of a batch."""
    digest = (await pipe.ask("SCRIPT", "LOAD", numbering.script)).decode()
    # Made beforehand: what is measured is the server.
    batches = [
        b"".join(
            command("EVALSHA", digest, 2, key, numbering.counter_of(key), "owner", ttl_ms, COUNTER_TTL_MS)
            for key in _names(start)
        )
        for start in range(0, keys, BATCH)
    ]
    began = time.perf_counter()
    await pipe.send(iter(batches), BATCH)
    return keys / (time.perf_counter() - began)


def _names(start: int) -> Iterator[str]:
    return (f"account:{number:010d}" for number in range(start, start + BATCH))
