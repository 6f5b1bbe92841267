"""What servers have used so far: processor time, and waits for the disk where etcd tells of them."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from harness.servers import EtcdNode, Server

_TICKS = os.sysconf("SC_CLK_TCK")
_METRIC = "etcd_disk_wal_fsync_duration_seconds"


@dataclass(frozen=True, slots=True)
class Usage:
    """Of all servers of an installation together."""

    cpu: float = 0.0
    """Seconds, user and system, all threads; zero where the system does not tell."""
    syncs: int = 0
    """Of Raft's log, which must be on the disk before anything is answered; none but for etcd."""
    sync_seconds: float = 0.0

    def since(self, before: "Usage") -> "Usage":
        return Usage(
            self.cpu - before.cpu, self.syncs - before.syncs, self.sync_seconds - before.sync_seconds
        )

    @property
    def mean_sync_ms(self) -> float | None:
        """`None` when there were none."""
        return self.sync_seconds * 1e3 / self.syncs if self.syncs else None


async def usage_of(nodes: Iterable[Server]) -> Usage:
    """Since each started."""
    cpu, syncs, seconds = 0.0, 0, 0.0
    async with aiohttp.ClientSession() as session:
        for node in nodes:
            cpu += _cpu_seconds(node.pid)
            if isinstance(node, EtcdNode):
                async with session.get(f"{node.client_url}/metrics") as reply:
                    lines = (line.rpartition(" ") for line in (await reply.text()).splitlines())
                    values = {name: value for name, _, value in lines if name.startswith(_METRIC)}
                syncs += int(float(values.get(f"{_METRIC}_count", 0)))
                seconds += float(values.get(f"{_METRIC}_sum", 0.0))
    return Usage(cpu, syncs, seconds)


def _cpu_seconds(pid: int) -> float:
    try:
        # The name may hold spaces and brackets; what follows the last bracket does not.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / _TICKS
