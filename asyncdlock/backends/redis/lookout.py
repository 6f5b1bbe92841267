"""Looks at the queue for those who wait: says that we live, finds what went wrong unheard, mends it.

One look per key and process asks for the first of its line. The next follows when the holder's lease
would end, or a third of our patience later; sooner while the holder is one that tells nobody.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.line import Line, Waiter
from asyncdlock.backends.redis.queue_server import ACQUIRE, WATCH, QueueServer
from asyncdlock.errors import BackendError, BackendUnavailable

_FIRST_LOOK = 0.1
_MOST_LOST = 5

Told = Callable[[str, list[Any], float], None]
Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


class Lookout:
    """The looks of one backend.

    `waiters` are all of the backend's, by owner; `told` hears of grants to others that a reply brought;
    `spawn` starts tasks that the backend ends when it is closed.
    """

    def __init__(
        self,
        server: QueueServer,
        waiters: Mapping[str, Waiter],
        told: Told,
        spawn: Spawn,
        *,
        handoffs: int,
        max_waiters: int,
        patience: float,
    ) -> None:
        self._server = server
        self._waiters = waiters
        self._told = told
        self._spawn = spawn
        self._handoffs = handoffs
        self._max_waiters = max_waiters
        self._patience = patience
        self.joining_again: dict[str, asyncio.Task[None]] = {}
        """Requests to join again, by owner: a release of the same owner must come after its own."""

    def look_soon(self, line: Line, pttl: int) -> None:
        """The first look at a line whose first waiter found a lock with this PTTL."""
        self.look_later(line, min(_FIRST_LOOK, _just_after(pttl)))

    def look_later(self, line: Line, delay: float) -> None:
        """Look after `delay` seconds, and not at the time that was set before."""
        if line.timer is not None:
            line.timer.cancel()
        line.timer = asyncio.get_running_loop().call_later(delay, self._start_look, line)

    def _start_look(self, line: Line) -> None:
        line.timer = None
        if line.task is None and line.waiters:
            line.task = self._spawn(self._look(line), f"look at {line.key}")

    async def _look(self, line: Line) -> None:
        """Say that we live, notice a lease that ended without a word, and whether we still queue."""
        try:
            first = line.first()
            if first is None:
                return
            if not self._server.listening(first.claim):
                await self._server.listen(first.claim)
            sent = time.monotonic()
            waits, pttl, now, tells, holder, *granted = await self._server.run(
                WATCH, first.claim, self._handoffs, self._server.messages.count_verb
            )
            line.offset = sent - now / 1000
            self._told(line.key, granted, sent)
            unaware = self._waiters.get(holder.decode())
            if not waits and not first.future.done():
                await self._queue_again(line.unserved())
            elif unaware is not None and not unaware.future.done():
                await self._queue_again([unaware])
        except Exception as error:
            if isinstance(error, BackendUnavailable) and not error.definite and line.lost < _MOST_LOST:
                # The connection was lost, and again when the request was repeated. Only a server that
                # cannot be reached any more ends a wait.
                line.lost += 1
                self.look_later(line, 0.0)
                return
            for waiter in line.waiters.values():
                waiter.failed(error)
            if not isinstance(error, BackendError):
                raise  # a defect: whoever waits has heard of it, and the log shall as well
            return
        finally:
            line.task = None
        line.lost = 0
        if not line.waiters:
            return
        if tells:
            line.delays = None
            delay = min(self._patience / 3, _just_after(pttl))
        else:
            # The holder will not tell when it lets go: ask, more and more rarely.
            line.delays = line.delays or jittered(0.01, 0.25)
            delay = min(next(line.delays), _just_after(pttl))
        self.look_later(line, delay)

    async def _queue_again(self, waiters: list[Waiter]) -> None:
        """The server forgot them, took them for dead, or told them in vain: they join again, in order."""
        joining = [
            self._spawn(self._join_again(waiter), f"queue again for {waiter.claim.key}") for waiter in waiters
        ]
        for waiter, task in zip(waiters, joining, strict=True):
            self.joining_again[waiter.claim.owner] = task
            task.add_done_callback(partial(self._joined_again, waiter.claim.owner))
        await asyncio.gather(*joining)

    def _joined_again(self, owner: str, task: "asyncio.Task[None]") -> None:
        if self.joining_again.get(owner) is task:
            del self.joining_again[owner]

    async def _join_again(self, waiter: Waiter) -> None:
        if waiter.future.done():
            return
        sent = time.monotonic()
        reply = await self._server.run(ACQUIRE, waiter.claim, self._handoffs, self._max_waiters)
        if type(reply) is not list:
            waiter.granted(int(reply), sent)
            return
        waiter.place, _, _, *granted = reply
        self._told(waiter.claim.key, granted, sent)
        if not waiter.place:
            waiter.failed(BackendError(f"the queue of {waiter.claim.key!r} was lost, and is full again"))


def _just_after(pttl: int) -> float:
    """Seconds until a lock with this PTTL has expired; -1 never does."""
    return float("inf") if pttl < 0 else pttl / 1000 + 0.002
