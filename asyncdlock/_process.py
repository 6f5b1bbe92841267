"""What happens in a forked child: inherited clients are refused, and the parent's sockets are taken away.

Both processes share each socket and epoll set after a fork. A child that writes to the socket takes part in
the parent's conversation; one that merely closes its transport takes it out of the parent's epoll set.
So the child's descriptors are replaced by /dev/null before any of its own code runs: whatever is written,
collected or torn down there later reaches nobody.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet


class Disownable(Protocol):
    """What must not be used in a child."""

    def disown(self) -> None: ...


class Connected(Protocol):
    """Something that talks to a server through an asyncio transport."""

    @property
    def transport(self) -> Any: ...


forks = 0
"""How many forks lie between this process and the first one that imported this module."""

_clients: WeakSet[Disownable] = WeakSet()
_connections: WeakSet[Connected] = WeakSet()

disown_in_child: Callable[[Disownable], None] = _clients.add
"""Tell this object when it finds itself in a forked child."""
cut_in_child: Callable[[Connected], None] = _connections.add
"""Replace the descriptor of this connection in a forked child."""


def _after_fork_in_child() -> None:
    global forks
    forks += 1
    _cut_connections()
    for client in tuple(_clients):
        client.disown()


def _cut_connections() -> None:
    transports = [one.transport for one in tuple(_connections)]
    open_ones = [one for one in transports if one is not None and not one.is_closing()]
    _connections.clear()
    if not open_ones:
        return
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for transport in open_ones:
        descriptor = transport.get_extra_info("socket").fileno()
        if descriptor >= 0:
            os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
