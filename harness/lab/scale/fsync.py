"""How long etcd waited for its disk: Raft's log must be on it before anything is answered."""

from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp

from harness.servers import EtcdNode, Server

_METRIC = "etcd_disk_wal_fsync_duration_seconds"


@dataclass(frozen=True, slots=True)
class Syncs:
    """Since the server started."""

    count: int = 0
    seconds: float = 0.0

    def mean_ms_since(self, before: "Syncs") -> float | None:
        """Of those since then; `None` when there were none."""
        count = self.count - before.count
        return (self.seconds - before.seconds) * 1e3 / count if count else None


async def syncs_of(nodes: Iterable[Server]) -> Syncs:
    """Of all etcd members together; none for servers of another kind."""
    total = Syncs()
    async with aiohttp.ClientSession() as session:
        for node in nodes:
            if isinstance(node, EtcdNode):
                async with session.get(f"{node.client_url}/metrics") as reply:
                    found = parse(await reply.text())
                total = Syncs(total.count + found.count, total.seconds + found.seconds)
    return total


def parse(exposition: str) -> Syncs:
    """The count and the sum from the text of `/metrics`."""
    lines = (line.rpartition(" ") for line in exposition.splitlines() if line.startswith(_METRIC))
    values = {name: value for name, _, value in lines}
    return Syncs(int(float(values.get(f"{_METRIC}_count", 0))), float(values.get(f"{_METRIC}_sum", 0.0)))
