"""Keeps schedules apart from loading: nothing begins while a process is still being started.

Loading Python and its libraries takes a core for most of a second per process. With dozens of them at
once, a case that had already begun would be late for its own schedule.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Loading:
    """How many processes are being started now."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Something loads for as long as the body runs."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def done(self) -> None:
        """Return when nothing loads."""
        while self._count:
            await self._none.wait()
