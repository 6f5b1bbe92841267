"""The sessions of one client: few, whatever TTLs its locks have, and no idle ones."""

import asyncio
import math

from asyncdlock.backends.zookeeper.session import Ensemble, Session
from asyncdlock.backends.zookeeper.wire import Tally

IDLE = 10.0
"""Seconds after which a session that nobody uses is given back to the server."""

# The timeouts of sessions within each power of ten: what people write, and no more than a third apart.
_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class Sessions:
    """Opened on demand, one for each timeout; locks of similar TTLs share one."""

    def __init__(self, ensemble: Ensemble, tally: Tally) -> None:
        self.ensemble = ensemble
        self._tally = tally
        self._shortest = 0.0  # that the servers agree to, as far as we know
        self.open: dict[float, Session] = {}
        self._ending: set[Session] = set()

    def for_ttl(self, ttl: float) -> Session:
        """The session that a lock with this TTL belongs to."""
        timeout = max(session_timeout(ttl), self._shortest)
        session = self.open.get(timeout)
        if session is None or session.over:
            self._review()
            timeout = max(timeout, self._shortest)
            session = self.open.get(timeout)
        if session is None:
            self.open[timeout] = session = Session(self.ensemble, timeout, self._tally, idle=IDLE)
        return session

    def _review(self) -> None:
        """Forget the sessions that are over, and see what the servers made of the others."""
        sessions, self.open = self.open, {}
        self._ending = {session for session in self._ending if not session.ended}
        for asked, session in sorted(sessions.items(), reverse=True):
            if session.over:
                self._ending.add(session)
            elif session.timeout > asked + 0.001 and session.timeout not in self.open:
                # The servers want longer ones than we asked for: all that are shorter share this one.
                self._shortest = session.timeout
                self.open[session.timeout] = session
            else:
                self.open[asked] = session

    async def aclose(self) -> None:
        """End every session, and with them every node that this client created."""
        closing = [session.aclose() for session in (*self.open.values(), *self._ending)]
        self.open.clear()
        self._ending.clear()
        await asyncio.gather(*closing)


def session_timeout(ttl: float) -> float:
    """The TTL, rounded up by a third at most: programs that compute their TTLs share sessions too."""
    power = 10.0 ** math.floor(math.log10(ttl))
    step = next((step for step in _STEPS if ttl <= step * power * (1 + 1e-9)), 10.0)
    return round(step * power, 3)
