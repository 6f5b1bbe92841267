"""Busy polling: keeps the event loop awake for the moment that a near server takes to answer.

A loop with nothing to do sleeps until the reply comes, and to be woken costs more than the server's
work: a core that went to sleep answers late, with cold caches. So for a tenth of a millisecond after a
request left on an idle connection, the loop looks for the reply again and again instead. Nothing else
waits for that, for every look is a turn of the loop: other tasks, timers and sockets are served as ever.

- Other processes get the core whenever they ask for it. Where they do, a core that we keep awake is one
  that we take from them: the next few requests go without.
- A server that is too far away to answer in time is not waited for like this: each time it proves so, twice
  as many requests as before go without.
"""

import os
import time
from collections.abc import Callable, Sized
from typing import Any

_STAY = 0.0001
"""Seconds: a server on the same machine or in the same rack answers within that."""
_ALONE = 0.000015
"""Seconds: if giving way takes longer, somebody else had the core."""
_AFTER_OTHERS = 15
"""Requests that go without after that."""
_MOST_MISSES = 10
"""That count: at most 2^10 - 1 requests in a row go without, for the distance of a server may change."""


class BusyPoll:
    """Polls for the replies of one connection; `pending` are those that are due."""

    __slots__ = ("_call_soon", "_looking", "_misses", "_pending", "_until", "_without", "waits")

    def __init__(self, pending: Sized, call_soon: Callable[[Callable[[], None]], Any]) -> None:
        self._pending = pending
        self._call_soon = call_soon
        self._until = 0.0
        self._looking = False
        self._misses = 0  # in a row
        self._without = 0
        self.waits: int = 0
        """How often the loop was kept awake so far."""

    def wait(self) -> None:
        """A request leaves, and nothing else is in flight."""
        if self._without:
            self._without -= 1
            return
        self._until = time.perf_counter() + _STAY
        if not self._looking:
            self._looking = True
            self.waits += 1
            self._call_soon(self._look)

    def _look(self) -> None:
        now = time.perf_counter()
        if not self._pending:
            self._looking = False
            self._misses = 0
        elif now < self._until:
            _give_way()
            if time.perf_counter() - now < _ALONE:
                self._call_soon(self._look)
            else:
                self._looking = False
                self._without = _AFTER_OTHERS
        else:
            self._looking = False
            self._misses = min(self._misses + 1, _MOST_MISSES)
            self._without = 2**self._misses - 1


# On a core that client and server share, the server could not answer before we let it run.
_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: None)
