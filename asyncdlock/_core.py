"""What a client and all its holdings share: the backend, the counts, the watchdog, the clean-up."""

import logging
from collections.abc import Callable

from asyncdlock import _process
from asyncdlock._callers import Callers
from asyncdlock._cleanup import Cleanup
from asyncdlock._local_queue import LocalQueue
from asyncdlock._thread_backend import ThreadBackend, ThreadWatchdog
from asyncdlock._watchdog import Watchdog
from asyncdlock.backend import Backend
from asyncdlock.errors import LockLost
from asyncdlock.metrics import Metrics

_log = logging.getLogger("asyncdlock")

OnLost = Callable[[LockLost], object]


class Core:
    """The machinery of one client."""

    __slots__ = (
        "__weakref__",
        "backend",
        "callers",
        "cleanup",
        "closed",
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
        self.cleanup: Cleanup = Cleanup(backend)
        self.watchdog: ThreadWatchdog | Watchdog = (
            ThreadWatchdog(backend, metrics)
            if isinstance(backend, ThreadBackend)
            else Watchdog(backend, metrics)
        )
        self.closed: bool = False
        self.foreign: bool = False
        """Inherited over a fork: it belongs to the parent."""
        _process.disown_in_child(self)

    def tell_lost(self, error: LockLost) -> None:
        """Log a loss and call back, unless it is this client's own end that brings it about."""
        if self.closed:
            return
        _log.warning("%s", error, extra={"key": error.key, "fence": error.fence})
        if self.on_lost is not None:
            try:
                self.on_lost(error)
            except Exception:
                _log.exception("the on_lost callback failed", extra={"key": error.key, "fence": error.fence})

    def close(self) -> None:
        """Refuse every later call."""
        self.closed = True
        self.callers.refusal = "this client is closed; connect() again"

    def disown(self) -> None:
        """This process is a child of the one that the client belongs to: nothing may be sent from here."""
        self.foreign = True
        self.callers.refusal = "this client belongs to another process; connect() after fork"
        self.cleanup.disown()
        for holding in self.watchdog.watched():
            holding.disown()
