"""Tasks that wait inside a client; closing the client ends their waits with an error of its own."""

import asyncio

from asyncdlock.errors import LockError


class Callers:
    """Who is inside `acquire` or `try_acquire` now."""

    __slots__ = ("_gone", "_inside", "_interrupted", "_loop")

    def __init__(self) -> None:
        # With each task the number of cancellations that it had asked for when it came in.
        self._inside: dict[asyncio.Task[object], int] = {}
        self._interrupted: set[asyncio.Task[object]] = set()
        self._gone: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> "asyncio.Task[object]":
        # The loop of the last call, most likely: until Python 3.12, to look it up takes a system call.
        task = asyncio.current_task(self._loop) if self._loop is not None else None
        if task is None:
            self._loop = asyncio.get_running_loop()
            task = asyncio.current_task(self._loop)
            assert task is not None, "asyncio runs coroutines in tasks"
        self._inside[task] = task.cancelling()
        return task

    def leave(self, task: "asyncio.Task[object]") -> None:
        del self._inside[task]
        if self._gone is not None:
            self._interrupted.discard(task)
            if not self._inside and not self._gone.done():
                self._gone.set_result(None)

    def check(self, task: "asyncio.Task[object]", error: BaseException) -> None:
        """Tell our own interruption from a cancellation by the task's owner.

        :raises LockError: the task was interrupted because the client closes.
        """
        if task in self._interrupted:
            asked = task.uncancel()
            if isinstance(error, asyncio.CancelledError) and asked <= self._inside[task]:
                raise LockError("this client was closed while its lock was waited for") from None

    async def interrupt(self, timeout: float) -> None:
        """End every wait, and return when all have left, after `timeout` seconds at the latest."""
        if not self._inside:
            return
        self._gone = asyncio.get_running_loop().create_future()
        self._interrupted.update(self._inside)
        for task in self._inside:
            task.cancel()
        await asyncio.wait((self._gone,), timeout=timeout)
