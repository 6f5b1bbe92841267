"""Several Redis servers: independent ones for Redlock, and a primary with its replicas."""

from contextlib import AbstractAsyncContextManager
from typing import Unpack

from harness.servers.group import Group
from harness.servers.redis_node import RedisNode, RedisOptions
from harness.servers.server import credentials, running


class RedisNodes(Group[RedisNode]):
    """Redis servers that know nothing of each other."""

    @property
    def url(self) -> str:
        """All of them as one Redlock."""
        return f"redlock://{credentials('', self[0].password)}{self.addresses}"


class ReplicatedRedis(Group[RedisNode]):
    """A primary and its replicas, already in step when started.

    Roles are written into the servers' configuration, so that a restarted one resumes its own.
    """

    @property
    def primary(self) -> RedisNode:
        """The server that was the primary at first."""
        return self[0]

    @property
    def replicas(self) -> list[RedisNode]:
        """The servers that were replicas at first."""
        return self.nodes[1:]

    @property
    def url(self) -> str:
        return self.primary.url

    async def start(self) -> None:
        await super().start()
        for replica in self.replicas:
            await self.follow(replica)

    async def follow(self, replica: RedisNode, address: str | None = None) -> None:
        """Let a server replicate from the primary, or from `address`: a proxy in front of it, say.

        :raises ServerFailed: the link did not come up.
        """
        host, _, port = (address or self.primary.address).rpartition(":")
        await replica.command("REPLICAOF", host, port)
        await replica.command("CONFIG", "REWRITE")
        await replica.until(replica.replicates, f"replication from {host}:{port}")

    async def promote(self, replica: RedisNode) -> None:
        """Make a server a primary, by hand and at once, whatever it has missed."""
        await replica.command("REPLICAOF", "NO", "ONE")
        await replica.command("CONFIG", "REWRITE")


def redis_nodes(count: int = 5, **options: Unpack[RedisOptions]) -> AbstractAsyncContextManager[RedisNodes]:
    """Independent Redis servers for the length of an `async with`, all with the same options."""
    return running(lambda: RedisNodes([RedisNode(**options) for _ in range(count)]))


def redis_replicated(
    replicas: int = 1, **options: Unpack[RedisOptions]
) -> AbstractAsyncContextManager[ReplicatedRedis]:
    """A primary with replicas for the length of an `async with`."""
    return running(lambda: ReplicatedRedis([RedisNode(**options) for _ in range(1 + replicas)]))
