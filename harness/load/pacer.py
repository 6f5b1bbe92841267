"""When each arrival is due: pure sequences of offsets, no clock and no event loop.

The open model's whole point is that this sequence does not depend on what the system under test
does: arrival *i* has its time before the run starts.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, count, takewhile

NANOSECONDS = 1_000_000_000


def offsets(rate: float, duration: float, *, arrivals: str = "constant", seed: int = 0) -> Iterator[int]:
    """Nanoseconds from the start of the run at which arrivals 0, 1, 2 … are due, up to `duration`.

    Lazy: a run of hours costs no more memory than one of seconds.

    :raises ValueError: unknown kind of arrivals, or a rate that is not positive.
    """
    if not rate > 0:
        raise ValueError(f"the rate must be positive, not {rate}")
    limit = round(duration * NANOSECONDS)
    if arrivals == "constant":
        return _constant(rate, limit)
    if arrivals == "poisson":
        return _poisson(rate, limit, random.Random(seed))
    raise ValueError(f"unknown kind of arrivals {arrivals!r}: constant or poisson")


def staged(
    stages: Sequence[tuple[float, float]], *, arrivals: str = "constant", seed: int = 0
) -> Iterator[int]:
    """Offsets of stages `(rate, duration)` that follow each other; as `offsets` when there is one.

    In a stage with the rate 0 nobody arrives.
    """
    began = 0
    for number, (rate, duration) in enumerate(stages):
        if rate:
            for offset in offsets(rate, duration, arrivals=arrivals, seed=seed + number):
                yield began + offset
        began += round(duration * NANOSECONDS)


class Course:
    """`(number, offset)` of the arrivals that belong to one process, the rest of which can be exchanged."""

    def __init__(self, due: Iterator[int], process: int, processes: int) -> None:
        self._due = due
        self._process = process
        self._processes = processes
        self._walked = 0
        """Numbers given, also those of the other processes."""
        self._passed: list[int] = []
        """Offsets of the others' arrivals since the last one of this process, and then its own."""

    def __iter__(self) -> "Course":
        return self

    def __next__(self) -> tuple[int, int]:
        if (self._walked - 1) % self._processes == self._process:
            self._passed.clear()
        for offset in self._due:
            number = self._walked
            self._walked += 1
            self._passed.append(offset)
            if number % self._processes == self._process:
                return number, offset
        raise StopIteration

    def exchange(self, at: int, due: Iterator[int]) -> bool:
        """From `at` on arrivals come at the offsets `due`; whether the last one that was told is void.

        To be called before `at`: what was told before the last one is taken for granted.
        """
        kept = sum(offset < at for offset in self._passed)
        taken_back = kept < len(self._passed)
        if taken_back:
            self._walked -= len(self._passed) - kept
            del self._passed[kept:]
            self._due = due
        else:
            self._due = chain(takewhile(lambda offset: offset < at, self._due), due)
        return taken_back


def share(due: Iterator[int], process: int, processes: int) -> Course:
    """The arrivals of one process: every `processes`-th.

    Each process walks the whole sequence, so that the arrivals of a run do not depend on how many
    processes share them.
    """
    return Course(due, process, processes)


def _constant(rate: float, limit: int) -> Iterator[int]:
    # A product per arrival, not a running sum: the schedule of hour ten is as exact as the first.
    interval = NANOSECONDS / rate
    for number in count():
        offset = round(number * interval)
        if offset >= limit:
            return
        yield offset


def _poisson(rate: float, limit: int, source: random.Random) -> Iterator[int]:
    # The first arrival of a Poisson process also waits an exponential gap.
    seconds = 0.0
    while True:
        seconds += source.expovariate(rate)
        offset = round(seconds * NANOSECONDS)
        if offset >= limit:
            return
        yield offset
