"""Fills a Redis with short-lived locks, as fast as it takes them.

The keys are those that as many acquisitions would leave: `SET key owner NX PX ttl` and, unless told
otherwise, `INCR fence:{key}`. The same seed gives the same keys and owners. They are written as raw
pipelined RESP: all keys have one length, so that a batch is a single `%` on a template, which costs less
than the server needs to read it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from harness.lab.scale.pipe import Pipe, command, info, open_pipe

BATCH = 1000
_LIMIT_KEYS = 100_000
_PARTS = 4
# A prime above every number of keys: `a * i + b` modulo it visits each key once, in no apparent order.
_PRIME = 4_294_967_291
MOST_KEYS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a seed, in their order."""

    seed: int

    @property
    def step(self) -> tuple[int, int]:
        rng = Random(self.seed)
        return rng.randrange(1, 1 << 20), rng.randrange(_PRIME)

    def numbers(self, start: int, stop: int) -> list[int]:
        """The names of the keys from the `start`-th on, as numbers."""
        factor, offset = self.step
        return [(factor * index + offset) % _PRIME for index in range(start, stop)]

    def key(self, index: int) -> str:
        """The name of the `index`-th lock."""
        return f"account:{self.numbers(index, index + 1)[0]:010d}"


@dataclass(frozen=True, slots=True)
class Filled:
    keys: int
    new: int
    """Locks that did not exist already."""
    seconds: float
    per_s: float
    raw_limit_per_s: float
    """What the same server took of the same commands, made beforehand, while it was being filled."""
    commands: int
    used_memory: int
    """Of the server, after."""
    finished: float
    """When, on the monotonic clock that all processes of a machine share."""

    @property
    def share_of_limit(self) -> float:
        return self.per_s / self.raw_limit_per_s if self.raw_limit_per_s else 0.0


async def fill(
    url: str,
    keys: int,
    *,
    seed: int = 1,
    ttl: float = 60.0,
    fences: bool = True,
    progress: Callable[[int], None] = lambda keys: None,
) -> Filled:
    """Write the locks of a seed and tell how fast that was; `progress` hears of every batch.

    A cancellation leaves the keys that were written until then; they expire by themselves, fences do not.

    :raises UsageError: the server cannot be reached or refuses.
    """
    per_key = 2 if fences else 1
    seconds, absent = 0.0, 0
    limits: list[float] = []
    async with open_pipe(url) as pipe:
        for start, stop in _parts(keys):
            limits.append(await _raw_limit(pipe, keys, ttl, fences))
            began = time.perf_counter()
            absent += await pipe.send(
                _batches(Keys(seed), start, stop, ttl, fences),
                BATCH * per_key,
                lambda batches: progress(batches * BATCH),
            )
            seconds += time.perf_counter() - began
        began = time.perf_counter()
        rest = keys % BATCH
        if rest:
            last = _batch(Keys(seed), keys - rest, keys, ttl, fences)
            absent += await pipe.send(iter([last]), rest * per_key)
            progress(rest)
        finished = time.perf_counter()
        seconds += finished - began
        memory = int(info(await pipe.ask("INFO", "memory"))["used_memory"])
        limits.append(await _raw_limit(pipe, keys, ttl, fences))
    limit = len(limits) / sum(1 / one for one in limits)
    return Filled(keys, keys - absent, seconds, keys / seconds, limit, keys * per_key, memory, finished)


def _parts(keys: int) -> Iterator[tuple[int, int]]:
    """The whole batches in a few parts: what the server takes of raw commands is looked at between them."""
    bounds = [keys // BATCH * part // _PARTS * BATCH for part in range(_PARTS + 1)]
    return pairwise(bounds)


async def _raw_limit(pipe: Pipe, keys: int, ttl: float, fences: bool) -> float:
    """Keys per second of the same commands on other new keys, made beforehand; they are removed again.

    A server that holds millions of keys takes fewer than one that holds none: what bounds a fill is what the
    server takes while it is being filled.
    """
    count = min(keys, _LIMIT_KEYS) // BATCH or 1
    names = [list(range(start, start + BATCH)) for start in range(_PRIME, _PRIME + count * BATCH, BATCH)]
    batches = [_render(numbers, numbers, ttl, fences) for numbers in names]
    began = time.perf_counter()
    await pipe.send(iter(batches), BATCH * (2 if fences else 1))
    seconds = time.perf_counter() - began
    await pipe.send(map(_removal, names), BATCH)
    return count * BATCH / seconds


def _removal(numbers: list[int]) -> bytes:
    names = (f"account:{number:010d}" for number in numbers)
    return b"".join(command("DEL", name, f"fence:{{{name}}}") for name in names)


def _batches(keys: Keys, start: int, stop: int, ttl: float, fences: bool) -> Iterator[bytes]:
    for first in range(start, stop, BATCH):
        yield _batch(keys, first, first + BATCH, ttl, fences)


def _batch(keys: Keys, start: int, stop: int, ttl: float, fences: bool) -> bytes:
    return _render(keys.numbers(start, stop), list(range(start, stop)), ttl, fences)


def _render(numbers: list[int], owners: list[int], ttl: float, fences: bool) -> bytes:
    milliseconds = str(round(ttl * 1000))
    lock = command("SET", "account:%010d", "00000000-0000-4000-8000-%012d", "NX", "PX", milliseconds)
    # The lengths that RESP wants are those of what the templates become.
    template = lock.replace(b"$13", b"$18").replace(b"$29", b"$36")
    values: list[int] = []
    if fences:
        template += command("INCR", "fence:{account:%010d}").replace(b"$21", b"$26")
        for number, owner in zip(numbers, owners, strict=True):
            values += (number, owner, number)
    else:
        for number, owner in zip(numbers, owners, strict=True):
            values += (number, owner)
    return template * len(numbers) % tuple(values)
