"""A daemon thread with an event loop of its own, for work that must not wait for the caller's.

It starts with its first call and ends when it is stopped, dropped, or the interpreter exits, whichever comes
first. After a fork the child has no such thread, and leaves the parent's loop alone.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from asyncdlock import _process
from asyncdlock._callers import CLIENT_CLOSED
from asyncdlock.errors import LockError

T = TypeVar("T")

_STOP_WITHIN = 2.0  # seconds
_CLOSED_MEANWHILE = "this client was closed meanwhile"


class LoopThread:
    """Runs coroutines for callers in other threads."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._running: list[tuple[asyncio.AbstractEventLoop, threading.Thread]] = []
        self._calls: set[_Call[Any]] = set()
        self._stop = weakref.finalize(self, _stop, self._running, _process.forks)

    @property
    def started(self) -> bool:
        return bool(self._running)

    @property
    def is_current(self) -> bool:
        """Whether it is this thread that asks."""
        return self.started and self._running[0][1] is threading.current_thread()

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs from now on.

        :raises LockError: the thread was stopped.
        """
        if not self._running:
            with self._starting:
                if not self._running:
                    self._start()
        return self._running[0][0]

    def _start(self) -> None:
        if not self._stop.alive:
            raise LockError(CLIENT_CLOSED)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_serve, args=(loop, self._calls), name="asyncdlock", daemon=True)
        thread.start()
        self._running.append((loop, thread))

    def stop(self) -> None:
        """End the thread, and whatever still runs in it."""
        self._stop()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await `coroutine` over there. A cancellation arrives there before any later call."""
        return await asyncio.wrap_future(self.submit(coroutine))

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run `coroutine` over there; cancelling the result cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop())

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Call it over there, soon; not at all when the thread has ended."""
        with contextlib.suppress(RuntimeError, LockError):
            self.loop().call_soon_threadsafe(callback, *args)

    def call(self, coroutine: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> T:
        """Wait for `coroutine` from a plain thread.

        When the wait is interrupted, by a signal's exception, the coroutine is cancelled; a result that
        nobody waits for any longer is given to `undo`, over there.

        :raises LockError: the thread was stopped.
        """
        call = _Call(coroutine, undo, self._calls)
        # From here on an interruption may come at any step, and none of them may lose a result.
        try:
            self._send(call)
            return call.outcome.result()
        except BaseException as error:
            if call.outcome.cancel():
                self.post(call.abandon)
            elif error is not call.outcome.exception() and undo is not None:
                self.post(undo, call.outcome.result())
            raise

    def _send(self, call: "_Call[Any]") -> None:
        self._calls.add(call)  # first: a thread that ends answers all that it finds here
        try:
            self.loop().call_soon_threadsafe(call.start)
        except RuntimeError:
            raise LockError(CLIENT_CLOSED) from None


class _Call(Generic[T]):
    """A coroutine that a plain thread waits for."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], undo: Callable[[T], object] | None, calls: "set[_Call[Any]]"
    ) -> None:
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._coroutine = coroutine
        self._undo = undo
        self._calls = calls
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._done)

    def abandon(self) -> None:
        """Nobody waits for it any longer."""
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()

    def never_started(self) -> None:
        """The thread has ended."""
        if self._task is None and self.outcome.set_running_or_notify_cancel():
            self._coroutine.close()
            self.outcome.set_exception(LockError(_CLOSED_MEANWHILE))

    def _done(self, task: "asyncio.Task[T]") -> None:
        self._calls.discard(self)
        error = LockError(_CLOSED_MEANWHILE) if task.cancelled() else task.exception()
        if not self.outcome.set_running_or_notify_cancel():
            if error is None and self._undo is not None:
                self._undo(task.result())
        elif error is None:
            self.outcome.set_result(task.result())
        else:
            self.outcome.set_exception(error)


def _serve(loop: asyncio.AbstractEventLoop, calls: "set[_Call[Any]]") -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    finally:
        loop.close()
        for call in tuple(calls):
            call.never_started()


def _stop(running: list[tuple[asyncio.AbstractEventLoop, threading.Thread]], forks: int) -> None:
    if not running or forks != _process.forks:
        return  # a wake-up from a child would reach the parent's loop
    ((loop, thread),) = running
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():  # as it may be, when the garbage collector calls
        thread.join(_STOP_WITHIN)
