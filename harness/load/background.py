"""Coroutines that run beside a body, and end with it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any


@contextlib.asynccontextmanager
async def background(*work: Any) -> AsyncIterator[None]:
    """Run coroutines beside the body; a failure of one of them ends the body."""
    body = asyncio.current_task()
    assert body is not None
    tasks = [asyncio.create_task(part) for part in work]

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            body.cancel()

    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
