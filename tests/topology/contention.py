"""Tasks of one client that take a lock again and again, whatever happens to its servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncdlock import BackendUnavailable, LockClient, LockError, LockLost
from tests.redis_queue.support import PATIENT, eventually


class Contention:
    """What they were granted, and how they failed."""

    def __init__(self, client: LockClient, key: str) -> None:
        self._client = client
        self._key = key
        self.fences: list[int] = []
        """In the order of the grants."""
        self.failures: list[LockError] = []

    @asynccontextmanager
    async def running(self, tasks: int) -> AsyncIterator[None]:
        """So many tasks contend while the body runs."""
        contending = [asyncio.create_task(self._contend()) for _ in range(tasks)]
        try:
            yield
        finally:
            for task in contending:
                task.cancel()
            await asyncio.wait(contending)
        assert all(task.cancelled() for task in contending), "none ended by itself"

    async def goes_on(self) -> None:
        """Wait for twenty grants more."""
        goal = len(self.fences) + 20

        async def reached() -> bool:
            return len(self.fences) >= goal

        await eventually(reached, lambda: f"further grants; the last failures were {self.failures[-3:]}")

    def failed_clearly(self) -> None:
        """Every failure said that the server was away, or that the lease was lost."""
        for failure in self.failures:
            assert isinstance(failure, BackendUnavailable | LockLost), repr(failure)

    async def _contend(self) -> None:
        while True:
            try:
                async with self._client.hold(self._key, ttl=2.0, timeout=PATIENT) as handle:
                    self.fences.append(handle.fence)
                    await asyncio.sleep(0.002)
            except LockError as error:
                self.failures.append(error)
                await asyncio.sleep(0.02)
