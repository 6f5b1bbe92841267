"""Who may call a client, and who waits inside it: one process, one event loop, until it is closed."""

import asyncio
from _thread import get_ident

from asyncdlock.errors import LockError

Task = asyncio.Task[object]

CLIENT_CLOSED = "this client is closed; connect() again"


class Callers:
    """The tasks inside `acquire` or `try_acquire`, all of one event loop."""

    __slots__ = ("_interrupted", "debug", "gone", "inside", "loop", "refusal", "thread")

    def __init__(self) -> None:
        self.inside: dict[Task, int] = {}
        """With each task the number of cancellations that it had asked for when it came in."""
        self.refusal: str | None = None
        """Why nobody may call any longer."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: int = 0
        self.debug: bool = False
        """Whether the event loop is in debug mode."""
        self.gone: asyncio.Future[None] | None = None
        """Once `interrupt` has begun: done when nobody is inside."""
        self._interrupted: set[Task] = set()

    def current(self) -> Task:
        """The task that calls.

        :raises LockError: it must not call: the client is closed, or belongs to another loop or process.
        """
        if self.refusal is None and self.thread == get_ident():
            # Of the known loop: before Python 3.12, looking up the running one takes a system call.
            task = asyncio.current_task(self.loop)
            if task is not None:
                return task
        return self._look_closer()

    def _look_closer(self) -> Task:
        if self.refusal is not None:
            raise LockError(self.refusal)
        running = asyncio.get_running_loop()
        if self.loop is not None and self.loop is not running:
            raise LockError("this client belongs to another event loop; connect() in this one")
        task = asyncio.current_task(running)
        assert task is not None, "asyncio runs coroutines in tasks"
        self.loop, self.thread, self.debug = running, get_ident(), running.get_debug()
        return task

    def left(self, task: Task) -> None:
        """One of those that `interrupt` ends has left `inside`."""
        self._interrupted.discard(task)
        if self.gone is not None and not self.inside and not self.gone.done():
            self.gone.set_result(None)

    def check(self, task: Task, error: BaseException) -> None:
        """Distinguish our own interruption from a cancellation by the task's owner.

        :raises LockError: the task was interrupted because the client closes.
        """
        if task in self._interrupted:
            asked = task.uncancel()
            if isinstance(error, asyncio.CancelledError) and asked <= self.inside[task]:
                raise LockError("this client was closed while its lock was waited for") from None

    async def interrupt(self, timeout: float) -> None:
        """End every wait, and return when all have left, after `timeout` seconds at the latest."""
        if not self.inside:
            return
        self.gone = asyncio.get_running_loop().create_future()
        self._interrupted.update(self.inside)
        for task in self.inside:
            task.cancel()
        await asyncio.wait((self.gone,), timeout=timeout)
