"""Cancels a coroutine at its n-th suspension: while it waits there, or when what it waits for has come."""

import asyncio
import enum
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Moment(enum.Enum):
    """When the cancellation comes."""

    WAITING = "while it waits"
    ANSWERED = "when the answer is there but was not seen yet"

    def __str__(self) -> str:
        return self.name.lower()


class CancelledAt(Generic[T]):
    """An awaitable that runs `coroutine` and cancels its own task at the given suspension, once."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], suspension: int, moment: Moment) -> None:
        self._coroutine = coroutine
        self._suspension = suspension
        self._moment = moment
        self.reached = False

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._coroutine.__await__()
        number = 0
        error: BaseException | None = None
        while True:
            try:
                waits_for = next(inner) if error is None else inner.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if number == self._suspension:
                self._cancel(waits_for)
            number += 1
            try:
                yield waits_for
                error = None
            except BaseException as thrown:
                error = thrown

    def _cancel(self, waits_for: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.reached = True
        if self._moment is Moment.ANSWERED and isinstance(waits_for, asyncio.Future):
            # Called before the task's own wake-up, which is registered after the yield.
            waits_for.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


class Step:
    """Runs one call of a scenario, to be cancelled at one suspension."""

    def __init__(self, suspension: int, moment: Moment) -> None:
        self._suspension = suspension
        self._moment = moment
        self.reached = False
        """Whether the call lived long enough to be cancelled there."""

    async def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T | None:
        """The call's result, or `None` when it ended as cancelled."""
        driven = CancelledAt(coroutine, self._suspension, self._moment)

        async def run() -> T:
            return await driven

        task = asyncio.create_task(run())
        await asyncio.wait([task])
        self.reached = driven.reached
        return None if task.cancelled() else task.result()
