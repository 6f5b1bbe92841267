"""Redis in company: independent nodes, replicas, sentinels, cluster; each with the failure it is for."""

import pytest

from harness import servers
from harness.servers.redis_node import Flavour

BOTH_FLAVOURS = pytest.mark.parametrize("flavour", ["redis", "valkey"])


async def test_independent_nodes_share_nothing() -> None:
    async with servers.redis_nodes(5) as nodes:
        assert len({node.port for node in nodes}) == 5
        assert nodes.url == "redlock://" + ",".join(node.address for node in nodes)
        await nodes[0].command("SET", "a", "1")
        assert await nodes[1].command("GET", "a") is None


@BOTH_FLAVOURS
async def test_a_replica_follows_and_keeps_what_it_had_when_promoted(flavour: Flavour) -> None:
    async with servers.redis_replicated(flavour=flavour, password="p") as pair:
        replica = pair.replicas[0]
        await pair.primary.command("SET", "a", "1")
        await pair.primary.command("WAIT", 1, 30_000)
        pair.primary.kill()
        await pair.promote(replica)
        assert await replica.command("GET", "a") == "1"
        assert await replica.command("SET", "a", "2")


async def test_a_restarted_replica_is_still_a_replica() -> None:
    async with servers.redis_replicated() as pair:
        replica = pair.replicas[0]
        await replica.restart()
        await replica.until(replica.replicates, "replication after a restart")
        assert (await replica.command("INFO", "replication"))["master_port"] == pair.primary.port


@BOTH_FLAVOURS
async def test_sentinels_replace_a_killed_primary(flavour: Flavour) -> None:
    async with servers.redis_sentinel(flavour=flavour, password="p", down_after_ms=500) as group:
        first = await group.primary()
        assert first is group.servers.primary
        first.kill()
        second = await group.promoted(instead_of=first)
        assert await second.command("SET", "a", "1")


@BOTH_FLAVOURS
async def test_a_cluster_covers_every_slot(flavour: Flavour) -> None:
    async with servers.redis_cluster(flavour=flavour) as cluster:
        keys = [f"key-{i}" for i in range(20)]
        homes = [await cluster.primary_of(key) for key in keys]
        assert {home.port for home in homes} == {node.port for node in cluster}
        for key, home in zip(keys, homes, strict=True):
            assert await home.command("SET", key, "1")


async def test_a_cluster_promotes_the_replica_of_a_killed_primary() -> None:
    async with servers.redis_cluster(replicas=1, node_timeout_ms=1000) as cluster:
        first = await cluster.primary_of("a")
        first.kill()
        witness = next(node for node in cluster if node.running)

        async def replaced() -> bool:
            return await cluster.primary_of("a") is not first

        await witness.until(replaced, "promoting a replica")
        assert await (await cluster.primary_of("a")).command("SET", "a", "1")
