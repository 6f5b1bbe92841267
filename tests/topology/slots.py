"""Moves a slot of a running Redis Cluster from one node to another, step by step."""

from harness.servers import RedisCluster
from harness.servers.redis_shards import ClusterNode


class Migration:
    """The move of one slot: `begin`, `move_keys` (as often as new ones appear), `finish`."""

    def __init__(self, cluster: RedisCluster, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        self._cluster = cluster
        self._slot = slot
        self.source = source
        self.target = target

    @classmethod
    async def of_key(cls, cluster: RedisCluster, key: str) -> "Migration":
        """From the node that serves `key` to the next one."""
        source = await cluster.primary_of(key)
        primaries = cluster.primaries
        target = primaries[(primaries.index(source) + 1) % len(primaries)]
        return cls(cluster, await source.command("CLUSTER", "KEYSLOT", key), source, target)

    async def begin(self) -> None:
        """From now on the source answers ASK for keys that it does not have."""
        source, target = await self._identities()
        await self.target.command("CLUSTER", "SETSLOT", self._slot, "IMPORTING", source)
        await self.source.command("CLUSTER", "SETSLOT", self._slot, "MIGRATING", target)

    async def move_keys(self) -> list[str]:
        """Move what there is, and return its names."""
        keys: list[str] = await self.source.command("CLUSTER", "GETKEYSINSLOT", self._slot, 1000)
        if keys:
            host, port = self.target.host, self.target.port
            await self.source.command("MIGRATE", host, port, "", 0, 5000, "KEYS", *keys)
        return keys

    async def finish(self) -> None:
        """Move the rest; from now on the source answers MOVED."""
        while await self.move_keys():
            pass
        _, target = await self._identities()
        others = [node for node in self._cluster.primaries if node not in (self.source, self.target)]
        for node in (self.target, self.source, *others):
            await node.command("CLUSTER", "SETSLOT", self._slot, "NODE", target)

    async def _identities(self) -> tuple[str, str]:
        return await self.source.command("CLUSTER", "MYID"), await self.target.command("CLUSTER", "MYID")
