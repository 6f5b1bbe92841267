"""Freezes one coroutine: it is not resumed, while everything else on its event loop goes on.

The mildest freeze. The watchdog of the same process keeps renewing, so the lock stays held; it is
what a holder looks like that waits for a slow query.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from harness.faults.journal import FaultJournal

T = TypeVar("T")


class Freezable(Awaitable[T], Generic[T]):
    """Awaits a coroutine that can be frozen meanwhile: `await Freezable(work())`.

    A frozen coroutine stands at its present `await`, also when what it waits for has arrived. A
    cancellation reaches it at once.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._thawed: asyncio.Future[None] | None = None

    def freeze(self) -> None:
        """From now on it is not resumed."""
        if self._thawed is None:
            self._thawed = asyncio.get_running_loop().create_future()

    def thaw(self) -> None:
        """It goes on where it stood."""
        if self._thawed is not None:
            thawed, self._thawed = self._thawed, None
            if not thawed.done():
                thawed.set_result(None)

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine = self._coroutine
        resume: Callable[[Any], Any] = coroutine.send
        argument: Any = None
        while True:
            while self._thawed is not None and not isinstance(argument, asyncio.CancelledError):
                try:
                    yield from asyncio.shield(self._thawed).__await__()
                except asyncio.CancelledError as cancelled:
                    resume, argument = coroutine.throw, cancelled
            try:
                waits_for = resume(argument)
            except StopIteration as end:
                result: T = end.value
                return result
            resume, argument = coroutine.send, None
            try:
                yield waits_for
            except BaseException as error:  # what it waits for failed, or it is cancelled
                resume, argument = coroutine.throw, error


@contextlib.asynccontextmanager
async def frozen_coroutine(
    journal: FaultJournal, target: Freezable[Any], *, who: str = "coroutine"
) -> AsyncIterator[None]:
    """The coroutine stands still for as long as the body runs."""
    target.freeze()
    with journal.fault("coroutine frozen", who=who):
        try:
            yield
        finally:
            target.thaw()
