"""What tests of every backend with a server need: claims, conditions to wait for, exact cancellation."""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from asyncdlock.types import Claim, owners

T = TypeVar("T")
TTL = 30.0
"""Longer than any test: nothing of theirs expires unless a test asks for less."""
_owners = owners()


def claim(key: str, ttl: float = TTL) -> Claim:
    """A fresh attempt on `key`."""
    return Claim(key, next(_owners), ttl)


async def until(condition: Callable[[], Awaitable[bool] | object], what: str, within: float = 30.0) -> None:
    """Wait for a condition instead of for a time."""
    try:
        async with asyncio.timeout(within):
            while True:
                holds = condition()
                if await holds if isinstance(holds, Awaitable) else holds:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None


@types.coroutine
def _counted(work: Coroutine[Any, Any, T], step: int) -> Generator[Any, Any, T]:
    """Run `work`, and cancel the task while it is suspended for the `step`-th time."""
    suspended = 0
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    try:
        waiting = work.send(None)
        while True:
            suspended += 1
            if suspended == step:
                loop.call_soon(task.cancel)
            try:
                got = yield waiting
            except BaseException as error:
                waiting = work.throw(error)
            else:
                waiting = work.send(got)
    except StopIteration as finished:
        result: T = finished.value
        return result


async def cancelled_at(step: int, work: Coroutine[Any, Any, T]) -> bool:
    """Run `work` in a task and cancel it at its `step`-th await; was it there to be cancelled?"""

    async def run() -> T:
        return await _counted(work, step)

    task = asyncio.create_task(run())
    await asyncio.wait({task})
    if task.cancelled():
        return True
    task.result()
    return False
