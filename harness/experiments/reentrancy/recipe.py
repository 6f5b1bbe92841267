"""The common recipe for a reentrant lock in Redis, with its two faults: experiment 13 compares it with ours.

The hold count stands in a hash beside the owner. Entering counts up and sets the TTL again, leaving counts
down, and at zero the hash is deleted. What the recipe overlooks:

- The count ends with the lease. Whoever enters again after that finds no hash and begins one: an acquisition
  that looks like a re-entry, and whose exit deletes the lock although its outer block goes on.
- One holder has one watchdog, and leaving stops it, also where the lock is still held further out.
"""

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from redis.asyncio import Redis

_POLL = 0.02
_RENEWALS_PER_TTL = 3

_ENTER = """
-- KEYS: the lock, its fence counter. ARGV: owner, TTL in milliseconds.
-- Returns count and fence, or nothing when somebody else holds it.
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then
  return false
end
if not owner then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fence', redis.call('INCR', KEYS[2]))
end
local count = redis.call('HINCRBY', KEYS[1], 'count', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {count, tonumber(redis.call('HGET', KEYS[1], 'fence'))}
"""

_LEAVE = """
-- KEYS: the lock, its fence counter. ARGV: owner.
-- Returns the count that is left, or -1 when somebody else holds it, or nobody.
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return -1
end
local count = redis.call('HINCRBY', KEYS[1], 'count', -1)
if count == 0 then
  redis.call('DEL', KEYS[1])
end
return count
"""

_RENEW = """
-- KEYS: the lock, its fence counter. ARGV: owner, TTL in milliseconds.
-- Returns whether the owner still holds it.
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""


@dataclass(frozen=True, slots=True)
class CountedEntry:
    lock: "CountedLock"
    fence: int
    depth: int
    """The hold count on the server, this entry included."""

    @property
    def owner(self) -> str:
        """Names the holding, not the client: a history tells two holdings apart by it."""
        return f"{self.lock.owner}/{self.fence}"

    @property
    def held(self) -> bool:
        """Whether the lease is good, by the local clock: for the record, the recipe never looks."""
        return self.lock.fence == self.fence and time.monotonic() < self.lock.good_until


class CountedLock:
    """`async with lock as entry:`, to be entered again by whoever shares the object; renews itself.

    As the recipe has it, a lost lease is told to nobody: neither by entering nor by leaving.
    """

    def __init__(self, redis: Redis, key: str, *, ttl: float) -> None:
        self.owner = str(uuid.uuid4())
        self.fence = 0
        """Of the last grant."""
        self.good_until = 0.0
        self.owned = False
        """Whether the last exit found the lock to be its own."""
        self._redis = redis
        self._key = key
        self._ttl = ttl
        self._stop = asyncio.Event()
        self._watchdog: asyncio.Task[None] | None = None

    async def __aenter__(self) -> CountedEntry:
        """:raises redis.RedisError: the server failed."""
        while True:
            sent = time.monotonic()
            told = await self._call(_ENTER, self.owner, self._milliseconds)
            if told:
                break
            await asyncio.sleep(_POLL)
        depth, self.fence = told
        self.good_until = sent + self._ttl
        if self._watchdog is None:
            self._stop.clear()
            self._watchdog = asyncio.create_task(self._renew())
        return CountedEntry(self, self.fence, depth)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """:raises redis.RedisError: the server failed."""
        if self._watchdog is not None:
            # Told and not cancelled: a command that is cancelled half-way takes its connection with it.
            self._stop.set()
            await self._watchdog
            self._watchdog = None
        left: int = await self._call(_LEAVE, self.owner)
        self.owned = left >= 0
        if left <= 0:
            self.good_until = 0.0

    async def _renew(self) -> None:
        while not self._stop.is_set():
            sent = time.monotonic()
            if not await self._call(_RENEW, self.owner, self._milliseconds):
                return
            self.good_until = sent + self._ttl
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._ttl / _RENEWALS_PER_TTL):
                    await self._stop.wait()

    @property
    def _milliseconds(self) -> int:
        return round(self._ttl * 1000)

    async def _call(self, script: str, *arguments: str | int) -> Any:
        return await self._redis.eval(script, 2, self._key, f"fence:{{{self._key}}}", *arguments)
