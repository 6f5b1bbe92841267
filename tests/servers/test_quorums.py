"""etcd and ZooKeeper: alone and as three, with a leader that can be killed."""

import asyncio

import pytest

from harness import servers
from harness.servers import etcd_cluster as etcd_module
from harness.servers.etcd_cluster import EtcdFlavour
from harness.servers.server import READY_WITHIN


@pytest.mark.parametrize("flavour", ["system", "wheel"])
async def test_one_etcd_keeps_its_data_over_a_restart(flavour: EtcdFlavour) -> None:
    async with servers.etcd(flavour=flavour) as cluster:
        node = cluster[0]
        assert cluster.url == f"etcd://{node.address}"
        await node.call("kv/put", {"key": "YQ==", "value": "MQ=="})
        await node.restart()
        answer = await node.call("kv/range", {"key": "YQ=="})
        assert answer["kvs"][0]["value"] == "MQ=="


async def test_etcd_elects_another_leader_and_takes_the_killed_one_back(
    etcd_cluster: servers.EtcdCluster,
) -> None:
    first = await etcd_cluster.leader()
    first.kill()
    second = await etcd_cluster.leader()
    assert second is not first
    await first.start()
    assert first.running


async def test_etcd_asks_for_certificate_and_password() -> None:
    async with servers.etcd(password="p@ss/word", users={"worker": "w"}, tls="mutual") as cluster:
        assert cluster.url.startswith("etcds://root:p%40ss%2Fword@")
        token = await cluster[0].call("auth/authenticate", {"name": "worker", "password": "w"})
        assert token["token"]
        with pytest.raises(OSError):
            await asyncio.open_connection(cluster[0].host, cluster[0].port, ssl=True)


async def test_zookeeper_elects_another_leader_and_takes_the_killed_one_back(
    zookeeper_ensemble: servers.ZooKeeperEnsemble,
) -> None:
    first = await zookeeper_ensemble.leader()
    first.kill()
    second = await zookeeper_ensemble.leader()
    assert second is not first
    await first.start()
    assert await first.mode() == "follower"


async def test_one_zookeeper_restarts(zookeeper_server: servers.ZooKeeperEnsemble) -> None:
    await zookeeper_server[0].restart()
    assert await zookeeper_server[0].mode() == "standalone"


async def test_one_failed_member_fails_the_cluster_at_once() -> None:
    """The other one would wait for a leader that it cannot elect alone."""
    cluster = servers.EtcdCluster(2)
    cluster[1].options = ["--election-timeout=1"]
    try:
        async with asyncio.timeout(READY_WITHIN / 2):
            with pytest.raises(servers.ServerFailed, match="election-timeout"):
                await cluster.start()
        assert not any(node.running for node in cluster)
    finally:
        cluster.close()


def test_missing_servers_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(servers.ServerMissing, match="apt-get install etcd-server"):
        etcd_module.find_binary("system")
    with pytest.raises(servers.ServerMissing, match="apt-get install zookeeper"):
        servers.ZooKeeperEnsemble(1)
