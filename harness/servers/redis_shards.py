"""A Redis Cluster, formed without redis-cli."""

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Unpack

from harness.servers.group import Group
from harness.servers.ports import free_port
from harness.servers.redis_node import RedisNode, RedisOptions
from harness.servers.server import credentials, running

SLOTS = 16_384


class ClusterNode(RedisNode):
    """One server of a cluster; `bus_port` is where the others reach it."""

    def __init__(self, *, node_timeout_ms: int, **options: Unpack[RedisOptions]) -> None:
        super().__init__(**options)
        # Explicit, because the default of port + 10,000 may not exist or be somebody else's.
        self.bus_port = free_port()
        self._config |= {
            "cluster-enabled": "yes",
            "cluster-port": str(self.bus_port),
            "cluster-node-timeout": str(node_timeout_ms),
        }

    async def agrees(self, size: int) -> bool:
        """Does it know `size` servers, and all slots to be covered by them?"""
        reply = await self.command("CLUSTER", "INFO")
        state = dict(line.split(":", 1) for line in reply.split("\r\n") if line)
        return state["cluster_state"] == "ok" and int(state["cluster_known_nodes"]) == size


class RedisCluster(Group[ClusterNode]):
    """Shards that cover all slots, each with as many replicas as asked for."""

    def __init__(self, shards: int, replicas: int, node_timeout_ms: int, options: RedisOptions) -> None:
        count = shards * (1 + replicas)
        super().__init__([ClusterNode(node_timeout_ms=node_timeout_ms, **options) for _ in range(count)])
        self._shards = shards

    @property
    def primaries(self) -> list[ClusterNode]:
        """The servers that were primaries at first."""
        return self.nodes[: self._shards]

    @property
    def replicas(self) -> list[ClusterNode]:
        """The servers that were replicas at first; number `i` follows primary `i % shards`."""
        return self.nodes[self._shards :]

    @property
    def url(self) -> str:
        """Names every server; clients find the right one for each key."""
        return f"redis://{credentials('', self[0].password)}{self.addresses}/0?topology=cluster"

    async def start(self) -> None:
        """Start, share out the slots, introduce everybody, and return when all agree."""
        await super().start()
        for number, node in enumerate(self.primaries):
            first, end = (SLOTS * i // self._shards for i in (number, number + 1))
            await node.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            # Distinct from the beginning, instead of by a round of conflicts.
            await node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            await self[0].command("CLUSTER", "MEET", node.host, node.port, node.bus_port)
        for node in self:
            await node.until(partial(node.agrees, len(self)), "joining the cluster")
        for number, replica in enumerate(self.replicas):
            primary = self.primaries[number % self._shards]
            identity = await primary.command("CLUSTER", "MYID")
            await replica.command("CLUSTER", "REPLICATE", identity)
        for replica in self.replicas:
            await replica.until(replica.replicates, "replication within the cluster")

    async def primary_of(self, key: str) -> ClusterNode:
        """The running server that serves the key now, as the first running server sees it."""
        witness = next(node for node in self if node.running)
        slot = await witness.command("CLUSTER", "KEYSLOT", key)
        for first, last, (_, port, *_), *_ in await witness.command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self if node.port == port)
        raise LookupError(f"no server covers slot {slot}")


def redis_cluster(
    shards: int = 3, *, replicas: int = 0, node_timeout_ms: int = 2000, **options: Unpack[RedisOptions]
) -> AbstractAsyncContextManager[RedisCluster]:
    """A Redis Cluster for the length of an `async with`.

    `replicas` is per shard; `node_timeout_ms` is how long a primary may be silent before one of them
    takes over.
    """
    return running(lambda: RedisCluster(shards, replicas, node_timeout_ms, options))
