"""How many sections a generator has under way, so that it begins no more than it has connections for.

A saturated generator that asks for ever more locks makes their holders wait for a connection to the
resource with the lock in hand, and everybody else for them: it does less the more it is offered. So an
arrival waits before it asks, with its clock running, while as many sections are under way as there can be
connections. Contention is not throttled: who waits for a key that is in use does not count, nor does a
request that the lock server keeps open for longer than a moment, nor a holder at work.
"""

from harness.load.clock import now

_MOMENT_BITS = 29
"""A moment is 2^29 ns, half a second: a request counts until the end of the moment after its own. Much longer
than a server takes that is merely busy, much shorter than what a contender waits for a dead holder."""
_UNCOUNTED = -2


class Sections:
    """Counts what is under way in one process."""

    def __init__(self, limit: int = 1 << 62) -> None:
        self._limit = limit
        self._in_play: dict[str, int] = {}
        """Contenders that ask for each key."""
        self._moment = 0
        self._asked = 0
        """Requests for a lock since the moment began that are open."""
        self._asked_before = 0
        """Those of the moment before."""
        self.writing = 0
        """Holders that write, or are about to."""

    def room(self, beginning: int = 0) -> bool:
        """Whether another section may begin, where `beginning` are about to."""
        if self._asked + self._asked_before + self.writing + beginning < self._limit:
            return True
        self._roll(now())
        return self._asked + self._asked_before + self.writing + beginning < self._limit

    def ask(self, key: str, at: int) -> int:
        """A contender asks for `key`. Give what this returns to `answered`."""
        contenders = self._in_play.get(key, 0)
        self._in_play[key] = contenders + 1
        if contenders:
            return _UNCOUNTED
        if at >> _MOMENT_BITS != self._moment:
            self._roll(at)
        self._asked += 1
        return self._moment

    def answered(self, key: str, asked: int) -> None:
        """It got the lock, or gave up."""
        contenders = self._in_play[key]
        if contenders > 1:
            self._in_play[key] = contenders - 1
        else:
            del self._in_play[key]
        if asked == self._moment:
            self._asked -= 1
        elif asked == self._moment - 1:
            self._asked_before -= 1

    def _roll(self, at: int) -> None:
        moment = at >> _MOMENT_BITS
        if moment != self._moment:
            self._asked_before = self._asked if moment == self._moment + 1 else 0
            self._asked = 0
            self._moment = moment
