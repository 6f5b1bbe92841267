"""The limits that a resource sets its clients."""

import resource
from typing import NamedTuple

MAX_BODY = 1 << 20
CLIENT_TIMEOUT = 30.0
MAX_CONNECTIONS = 10_000
MAX_BUFFERED = 64 << 20

_DESCRIPTORS_KEPT = 128  # for the store, the listening socket, and connections that are being refused


class Limits(NamedTuple):
    max_body: int = MAX_BODY
    """Bytes of the largest value."""
    client_timeout: float = CLIENT_TIMEOUT
    """Seconds over which a client may send its headers, its body, or read a piece of its answer."""
    max_connections: int = MAX_CONNECTIONS
    max_buffered: int = MAX_BUFFERED
    """Bytes of unfinished bodies, and again of unread answers, in all connections together."""

    @property
    def connections(self) -> int:
        """As many as were granted, or as the process has descriptors for."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return self.max_connections
        return max(1, min(self.max_connections, soft - _DESCRIPTORS_KEPT))
