"""The library's ways to number the grants of a lock in Redis, and how to send many of them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from asyncdlock.backends.redis.fence_counter import FenceCounter, fence_counter
from asyncdlock.backends.redis.keys import fence_key, lock_name
from harness.lab.scale.fill import BATCH
from harness.lab.scale.pipe import Pipe, command

LIFE = 1.0
"""Seconds by which a counter that does not stay outlasts its lease."""

_OWNER = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Numbering:
    name: str
    counter: FenceCounter
    survives_loss: bool
    """Are fences still above the old ones when the counter was lost with all data?"""

    @property
    def stays(self) -> bool:
        """Is there a counter for every key that was ever locked, for ever?"""
        return self.counter.stays

    def words(self, key: str, ttl_ms: int) -> tuple[str | int, ...]:
        """What follows the script in a request for one lock and one fence."""
        names = lock_name(key), fence_key(key), *self.counter.keys(key)
        return len(names), *names, _OWNER, ttl_ms, 1


NUMBERINGS = (
    Numbering("per key", fence_counter("per-key"), survives_loss=False),
    Numbering("per shard", fence_counter("per-shard", LIFE), survives_loss=True),
    Numbering("per key, expiring", fence_counter("expiring", LIFE), survives_loss=True),
)


async def take(pipe: Pipe, numbering: Numbering, key: str, *, ttl_ms: int = 60_000) -> int:
    """Take a lock that is free; the fence."""
    return int(await pipe.ask("EVAL", numbering.counter.acquire.source, *numbering.words(key, ttl_ms)))


async def take_many(pipe: Pipe, numbering: Numbering, keys: int, *, ttl_ms: int) -> float:
    """Lock this many keys, each once; returns how many per second. `keys` is a multiple of a batch."""
    # Made beforehand: what is measured is the server.
    batches = list(await requests(pipe, numbering, keys, ttl_ms=ttl_ms))
    began = time.perf_counter()
    await pipe.send(iter(batches), BATCH)
    return keys / (time.perf_counter() - began)


async def requests(pipe: Pipe, numbering: Numbering, keys: int, *, ttl_ms: int) -> Iterator[bytes]:
    """The requests of this many locks, in batches."""
    digest = (await pipe.ask("SCRIPT", "LOAD", numbering.counter.acquire.source)).decode()
    # All keys have one length: to fill in a template takes less time than the server needs for it.
    spelt = command("EVALSHA", digest, *numbering.words(_name(_SAMPLE), ttl_ms))
    template = spelt.replace(b"%d" % _SAMPLE, b"%010d")
    shared = numbering.counter.keys(_name(_SAMPLE))
    for name in shared:  # their names differ in length
        template = template.replace(_bulk(name), b"%b")
    uses = spelt.count(b"%d" % _SAMPLE)
    return (
        template * BATCH % tuple(_values(numbering, start, uses) if shared else _repeated(start, uses))
        for start in range(0, keys, BATCH)
    )


_SAMPLE = 9_876_543_210  # found nowhere else in a request


def _name(number: int) -> str:
    return f"account:{number:010d}"


def _bulk(name: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(name), name.encode())


def _repeated(start: int, uses: int) -> Iterator[int]:
    return (number for number in range(start, start + BATCH) for _ in range(uses))


def _values(numbering: Numbering, start: int, uses: int) -> Iterator[int | bytes]:
    for number in range(start, start + BATCH):
        yield from (number,) * uses
        yield from map(_bulk, numbering.counter.keys(_name(number)))
