"""Two holders in a fixed order, and many at random: the same for every mode of the resource."""

import asyncio
import random
from collections.abc import Sequence

from harness.experiments.depth.holder import Holder
from harness.experiments.depth.modes import Arena

OLDER_FENCE = 33
"""The numbers of Kleppmann's example: 33 is overtaken by 34."""

CONTENDERS = 6
_LONGEST_WAIT = 1.6  # in TTLs: three of eight holders lose their lease between read and write

Waits = Sequence[Sequence[float]]
"""Of each contender: the seconds between read and write, update after update."""


async def older_writes_first(arena: Arena) -> None:
    """Both have read before either writes: 33 reads and pauses, 34 reads, 33 writes, 34 writes.

    :raises LockError: the lock server failed.
    """
    a, b = await _two_that_read(arena)
    await a.write("33's update")
    await b.write("34's update")
    await asyncio.gather(a.release(), b.release())


async def younger_writes_first(arena: Arena) -> None:
    """The example as Kleppmann tells it: 33 reads and pauses, 34 reads and writes, 33 writes.

    :raises LockError: the lock server failed.
    """
    a, b = await _two_that_read(arena)
    await b.write("34's update")
    await a.write("33's update")
    await asyncio.gather(a.release(), b.release())


async def at_random(arena: Arena, waits: Waits) -> None:
    """Contenders that update one after the other as the lock lets them; some pause beyond their lease.

    :raises LockError: the lock server failed.
    """

    async def contend(number: int) -> None:
        holder = arena.holder(f"contender {number}")
        for turn, wait in enumerate(waits[number]):
            await holder.update(f"{number}.{turn}", wait)

    await asyncio.gather(*(contend(number) for number in range(len(waits))))


def draw_waits(rng: random.Random, updates: int, *, ttl: float) -> Waits:
    """Waits of all lengths up to well beyond the lease, so that holders wake up at any point of the next."""
    return [
        [round(rng.uniform(0, _LONGEST_WAIT) * ttl, 4) for _ in range(updates)] for _ in range(CONTENDERS)
    ]


async def _two_that_read(arena: Arena) -> tuple[Holder, Holder]:
    await arena.client.raise_fence(arena.key, above=OLDER_FENCE - 1)
    a, b = arena.holder("A"), arena.holder("B")
    await a.acquire()
    await a.read()
    await b.acquire()  # granted when A's lease has run out
    await b.read()
    return a, b
