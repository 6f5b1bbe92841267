"""An event loop on virtual time, whose next callback is chosen from outside.

Nothing waits: when no callback is ready the clock moves to the next timer. The library reads
`time.monotonic`, so `virtual_time` puts the loop's clock in its place, and random numbers are the same
each time.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from heapq import heappop
from itertools import count
from typing import Any
from unittest import mock

from asyncdlock._holding import Holding

START = 1_000_000.0
_MOST_ENDINGS = 20


class Stuck(Exception):
    """No callback is ready, and no timer will make one."""


class _Task(asyncio.Task[Any]):
    """Sets of tasks are iterated in the order of their hashes, and addresses differ from run to run."""

    def __init__(self, *args: Any, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs one callback at a time: the one that `pick` chooses of so many that are ready."""

    # What is private to asyncio's base class and used here has been the same from 3.11 to 3.14.
    _ready: Any
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.steps = 0
        self.pick: Callable[[int], int] | None = None
        """Without it, callbacks run in their order."""
        self.after_step: Callable[[], None] | None = None
        self.errors: list[str] = []
        """What nobody caught."""
        numbers = count()

        def task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> _Task:
            return _Task(coroutine, loop=loop, number=next(numbers), **options)

        self.set_task_factory(task)
        self.set_exception_handler(lambda _, context: self.errors.append(str(context)))

    def time(self) -> float:
        return self.now

    def next_timer(self) -> float | None:
        """When the next timer is due."""
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heappop(scheduled)
        return scheduled[0].when() if scheduled else None

    def pass_time(self) -> None:
        """Move the clock to the next timer, whether or not anything else is ready.

        :raises Stuck: there is none.
        """
        due = self.next_timer()
        if due is None:
            raise Stuck("nothing is left to happen")
        self.now = max(self.now, due)

    def _run_once(self) -> None:
        ready = self._ready
        while True:
            while (due := self.next_timer()) is not None and due <= self.now:
                ready.append(heappop(self._scheduled))
            if any(handle._cancelled for handle in ready):
                running = [handle for handle in ready if not handle._cancelled]
                ready.clear()
                ready.extend(running)
            if ready:
                break
            self.pass_time()
        turn = 0 if self.pick is None else self.pick(len(ready))
        handle = ready[turn]
        del ready[turn]
        self.steps += 1
        handle._run()
        if self.after_step is not None:
            self.after_step()

    def end(self) -> None:
        """Cancel what is left, let it come to its end, and close."""
        self.pick = self.after_step = None
        with suppress(Stuck):
            for _ in range(_MOST_ENDINGS):
                left = asyncio.all_tasks(self)
                if not left:
                    break
                for task in left:
                    task.cancel()
                self.run_until_complete(asyncio.wait(left, timeout=1.0))
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""


_loops: list[VirtualLoop] = []


def _clock() -> float:
    return _loops[-1].now


@contextmanager
def virtual_time() -> Iterator[None]:
    """The clock is that of `fresh_loop`; entered once for many loops, because to patch takes a while."""
    state = random.getstate()
    with (
        mock.patch.multiple(time, monotonic=_clock, perf_counter=_clock, time=_clock),
        mock.patch("os.urandom", random.randbytes),
        mock.patch.object(Holding, "__hash__", lambda holding: holding.grant.fence),
    ):
        try:
            yield
        finally:
            random.setstate(state)


@contextmanager
def fresh_loop(seed: int = 0) -> Iterator[VirtualLoop]:
    """A loop whose clock is the library's, inside `virtual_time`; whatever still runs at the end is ended."""
    loop = VirtualLoop()
    random.seed(seed)
    _loops.append(loop)
    try:
        yield loop
    finally:
        loop.end()
        _loops.pop()
