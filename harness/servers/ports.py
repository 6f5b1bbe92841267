"""Finds loopback ports that nobody uses."""

import random
import socket
from collections import deque
from pathlib import Path

_random = random.SystemRandom()  # two seeded runs side by side must not walk the same ports
_given: deque[int] = deque(maxlen=2_000)  # those not yet bound by the server they were chosen for
_LOWEST = 10_240


def free_port() -> int:
    """A TCP port that the kernel has just said is free on 127.0.0.1, and that was not given out before.

    It lies below the range from which the kernel numbers outgoing connections. Inside that range a
    stopped server's port can be taken by any client, and a client that keeps trying to reconnect
    can even be connected to itself.
    """
    highest = _first_outgoing_port() - 1
    for _ in range(100):
        port = _random.randint(_LOWEST, highest)
        if port not in _given and _is_free(port):
            _given.append(port)
            return port
    return _any_port()


def _first_outgoing_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32_768
    return first if first > _LOWEST + 1_000 else 32_768


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose old connections linger in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
