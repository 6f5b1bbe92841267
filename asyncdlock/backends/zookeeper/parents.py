"""The nodes above the contenders: made when they are missing, removed by the server when they are empty."""

import asyncio
from typing import Any

from kazoo.exceptions import ConnectionLoss, NoAuthError, SessionExpiredError, ZookeeperError
from kazoo.protocol.serialization import Create

from asyncdlock.backends.zookeeper.names import ROOT
from asyncdlock.backends.zookeeper.records import CreateContainer
from asyncdlock.backends.zookeeper.wire import Wire

_REMEMBERED = 65_536


class Parents:
    """What this client knows to exist. The server may remove an empty container at any time."""

    def __init__(self, chroot: str, acl: list[Any], *, containers: bool) -> None:
        self._lasting = _ancestors(chroot + ROOT)
        self._acl = acl
        self._containers = containers
        self._known: set[str] = set()

    def prepare(self, wire: Wire, parent: str) -> None:
        """Send the creation of `parent` ahead of a contender's, unless it was there before.

        One write for both, so a key's first acquisition costs one round trip like all others. It is not
        sent always because even a creation that finds its node in place costs the servers a log entry.
        """
        if parent in self._known:
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(parent)
        wire.post(self._creation(parent))

    async def make(self, wire: Wire, parent: str) -> Exception | None:
        """Create `parent` and everything above it that is missing.

        Errors that concern one node, such as that it exists, are left to the caller's next attempt. That
        one may not be created is returned: it is of no concern if the node exists already.

        :raises ConnectionLoss, SessionExpiredError: as every request does.
        """
        requests = [wire.send(self._creation(path)) for path in _ancestors(parent)]
        await asyncio.wait(requests)
        refusal: Exception | None = None
        for request in requests:
            error = request.exception()
            if isinstance(error, ConnectionLoss | SessionExpiredError) or (
                error is not None and not isinstance(error, ZookeeperError)
            ):
                raise error
            if isinstance(error, NoAuthError):
                refusal = error
        return refusal

    def _creation(self, path: str) -> Any:
        if self._containers and path not in self._lasting:
            return CreateContainer(path, self._acl)
        return Create(path, b"", self._acl, 0)


def _ancestors(path: str) -> list[str]:
    """`/a/b/c` -> `/a`, `/a/b`, `/a/b/c`."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(2, len(parts) + 1)]
