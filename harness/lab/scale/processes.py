"""What a process has used so far, as Linux tells it; zero where it does not."""

import os
from collections.abc import Iterable
from pathlib import Path

from harness.servers.server import Server

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, all its threads."""
    try:
        # The name may hold spaces and brackets; what follows the last bracket does not.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / _TICKS


def cpu_of(nodes: Iterable[Server]) -> float:
    """CPU seconds of all servers together."""
    return sum(cpu_seconds(node.pid) for node in nodes)
