"""Keeps schedules apart from loading: nothing begins while a process is still being started.

Loading Python and its libraries takes a core for most of a second per process. With dozens of them at
once, a case that had already begun would be late for its own schedule.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

# More at once only compete for the same cores, and slow starts look like failed ones.
_AT_ONCE = 4
_GAP = 0.1


class LoadingGate:
    """How many things are being started now."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._starts = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Something is being started for as long as the body runs; waits its turn. Do not nest."""
        with self.going_on():
            async with self._slots:
                yield

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """The body waits for something that is being started elsewhere."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def done(self) -> None:
        """Return when nothing loads, to one caller after the other.

        A process that begins connects to everything for the first time. Dozens doing so in the same
        millisecond are slower than a lock server's patience.
        """
        while self._count:
            await self._none.wait()
        async with self._starts:
            await asyncio.sleep(_GAP)
