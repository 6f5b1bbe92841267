"""A Redis primary with replicas, and sentinels that replace it when it dies."""

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Unpack

from harness.servers.group import Group
from harness.servers.redis_groups import ReplicatedRedis
from harness.servers.redis_node import RedisNode, RedisOptions
from harness.servers.server import credentials, running

SERVICE = "mymaster"


class SentinelNode(RedisNode):
    """One sentinel, watching `primary`."""

    kind = "sentinel"

    def __init__(self, primary: RedisNode, *, quorum: int, down_after_ms: int) -> None:
        super().__init__(binary=primary.binary)
        self._watch = [
            ["monitor", SERVICE, primary.host, str(primary.port), str(quorum)],
            ["down-after-milliseconds", SERVICE, str(down_after_ms)],
            # Also how long a failed attempt blocks the next one.
            ["failover-timeout", SERVICE, str(4 * down_after_ms)],
            *([["auth-pass", SERVICE, primary.password]] if primary.password else []),
        ]

    async def primary_address(self) -> tuple[str, int]:
        """Where this sentinel sends clients."""
        host, port = await self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return host, int(port)

    async def sees(self, *, sentinels: int, replicas: int) -> bool:
        """Has it found that many other sentinels and replicas, and is the primary well?"""
        flat = await self.command("SENTINEL", "MASTER", SERVICE)
        state = dict(zip(flat[::2], flat[1::2], strict=True))
        found = (int(state["num-other-sentinels"]), int(state["num-slaves"]))
        return found == (sentinels, replicas) and state["flags"] == "master"

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]

    def _directives(self) -> list[list[str]]:
        common = [["bind", self.host], ["port", str(self.port)], ["dir", str(self.data)]]
        return [*common, *(["sentinel", *words] for words in self._watch)]


class RedisWithSentinels:
    """`servers`, watched by `sentinels`."""

    def __init__(self, servers: ReplicatedRedis, *, sentinels: int, down_after_ms: int) -> None:
        quorum = sentinels // 2 + 1
        self.servers = servers
        self.sentinels = Group(
            [
                SentinelNode(servers.primary, quorum=quorum, down_after_ms=down_after_ms)
                for _ in range(sentinels)
            ]
        )

    @property
    def nodes(self) -> list[RedisNode]:
        return [*self.servers, *self.sentinels]

    @property
    def url(self) -> str:
        """Names the sentinels; clients ask them for the primary."""
        secret = credentials("", self.servers.primary.password)
        return f"redis://{secret}{self.sentinels.addresses}/0?topology=sentinel&service={SERVICE}"

    async def start(self) -> None:
        """Start, and return when every sentinel knows all others and all replicas."""
        await self.servers.start()
        await self.sentinels.start()
        others, replicas = len(self.sentinels) - 1, len(self.servers.replicas)
        for sentinel in self.sentinels:
            complete = partial(sentinel.sees, sentinels=others, replicas=replicas)
            await sentinel.until(complete, "finding the other sentinels and the replicas")

    def close(self) -> None:
        self.sentinels.close()
        self.servers.close()

    async def primary(self) -> RedisNode:
        """The server that the first running sentinel calls the primary now."""
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.running)
        _, port = await sentinel.primary_address()
        return next(server for server in self.servers if server.port == port)

    async def promoted(self, *, instead_of: RedisNode) -> RedisNode:
        """Wait until the sentinels have replaced a dead primary, and return the new one.

        :raises ServerFailed: they did not in time.
        """

        async def replaced() -> bool:
            primary = await self.primary()
            if primary is instead_of:
                return False
            return bool((await primary.command("INFO", "replication"))["role"] == "master")

        await self.sentinels[0].until(replaced, "promoting a replica")
        return await self.primary()


def redis_sentinel(
    *, replicas: int = 2, sentinels: int = 3, down_after_ms: int = 1000, **options: Unpack[RedisOptions]
) -> AbstractAsyncContextManager[RedisWithSentinels]:
    """A primary, replicas and sentinels for the length of an `async with`.

    `down_after_ms` is how long the primary may be silent before a replica is promoted.
    """

    def build() -> RedisWithSentinels:
        servers = ReplicatedRedis([RedisNode(**options) for _ in range(1 + replicas)])
        return RedisWithSentinels(servers, sentinels=sentinels, down_after_ms=down_after_ms)

    return running(build)
