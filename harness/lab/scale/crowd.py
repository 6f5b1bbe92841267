"""Many tasks that do the same."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def crowd(size: int, one: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `one` this many times at once; the first failure ends all, and is raised unchanged."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(size):
                group.create_task(one())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
