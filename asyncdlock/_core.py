"""What a client and all its holdings share: the backend, the counts, the watchdog, the clean-up."""

import asyncio
import logging
from collections.abc import Callable

from asyncdlock import _process
from asyncdlock._callers import CLIENT_CLOSED, Callers, Task
from asyncdlock._cleanup import Cleanup
from asyncdlock._deadlines import Deadlines
from asyncdlock._holding import CLOSED
from asyncdlock._local_queue import LocalQueue
from asyncdlock._thread_backend import ThreadBackend, ThreadWatchdog
from asyncdlock._watchdog import Watchdog
from asyncdlock.backend import Backend
from asyncdlock.errors import AcquireTimeout, LockError, LockLost
from asyncdlock.metrics import Metrics
from asyncdlock.types import Claim

_log = logging.getLogger("asyncdlock")

_CLOSE_TIMEOUT = 5.0
_AT_ONCE = 500  # of all that is held, between two turns of the event loop

OnLost = Callable[[LockLost], object]


class Core:
    """The machinery of one client."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "backend",
        "callers",
        "cleanup",
        "closed",
        "deadlines",
        "foreign",
        "label",
        "metrics",
        "on_lost",
        "prefix",
        "queue",
        "watchdog",
    )

    def __init__(
        self, backend: Backend, metrics: Metrics, *, prefix: str, label: str, on_lost: OnLost | None
    ) -> None:
        self.backend: Backend = backend
        self.queue: LocalQueue | None = backend if isinstance(backend, LocalQueue) else None
        self.metrics: Metrics = metrics
        self.prefix: str = prefix
        self.label: str = label
        self.on_lost: OnLost | None = on_lost
        self.callers: Callers = Callers()
        self.deadlines: Deadlines = Deadlines()
        self.cleanup: Cleanup = Cleanup(backend)
        self.watchdog: ThreadWatchdog | Watchdog = (
            ThreadWatchdog(backend, metrics)
            if isinstance(backend, ThreadBackend)
            else Watchdog(backend, metrics)
        )
        self.closed: bool = False
        self._closing: asyncio.Task[None] | None = None
        self.foreign: bool = False
        """Inherited over a fork: it belongs to the parent."""
        _process.disown_in_child(self)

    def tell_lost(self, error: LockLost) -> None:
        """Log a loss and call back, unless this client's own end is the cause."""
        if self.closed:
            return
        _log.warning("%s", error, extra={"key": error.key, "fence": error.fence})
        if self.on_lost is not None:
            try:
                self.on_lost(error)
            except Exception:
                _log.exception("the on_lost callback failed", extra={"key": error.key, "fence": error.fence})

    def too_late(self, claim: Claim, timeout: float | None) -> AcquireTimeout:
        """Count a wait that timed out, and say so to its caller."""
        self.metrics.acquire_timeouts += 1
        key = claim.key[len(self.prefix) :]
        return AcquireTimeout(
            f"lock {key!r} was not granted within {timeout:g} s", key=key, owner=claim.owner
        )

    def failed(self, task: Task, claim: Claim, error: BaseException) -> None:
        """The call was cancelled, timed out or failed: the claim may have won on the server all the same.

        :raises LockError: it was interrupted because this client closes.
        """
        if isinstance(error, LockError):
            error.key, error.owner = claim.key[len(self.prefix) :], claim.owner
        if not getattr(error, "definite", False):
            self.cleanup.give_back(claim, may_wait=True)
        self.callers.check(task, error)

    async def aclose(self) -> None:
        """Refuse every later call, end every wait, give everything back, close the connections.

        :raises LockError: the client belongs to another event loop.
        """
        if self.foreign:
            return
        if not self.closed:
            self.callers.current()
            self.closed = True
            self.callers.refusal = CLIENT_CLOSED
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="asyncdlock close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            # Waiters first: none of them shall get a lock that is given back below.
            await self.callers.interrupt(_CLOSE_TIMEOUT)
            self.deadlines.close()
            for number, holding in enumerate(self.watchdog.watched(), start=1):
                holding.lose(CLOSED)
                self.cleanup.give_back(holding.grant.claim)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            await self.watchdog.aclose()
            await self.cleanup.drain(_CLOSE_TIMEOUT)
        finally:
            await self.backend.aclose()

    def disown(self) -> None:
        """This process is a child of the one that the client belongs to: nothing may be sent from here."""
        self.foreign = True
        self.callers.refusal = "this client belongs to another process; connect() after fork"
        self.cleanup.disown()
        for holding in self.watchdog.watched():
            holding.disown()
