"""Watches live on a stream of their own: it goes where the requests go, and its silence is noticed."""

import asyncio

import pytest

from asyncdlock.backends.etcd import EtcdBackend, from_url
from harness.servers import EtcdCluster, EtcdNode
from tests.backends.support import claim, until


def waiter_on(node: EtcdNode, cluster: EtcdCluster) -> EtcdBackend:
    backend = from_url(cluster.url)
    while backend.endpoint != node.address:  # a client starts with any member
        backend = from_url(cluster.url)
    return backend


async def follower(cluster: EtcdCluster) -> EtcdNode:
    leader = await cluster.leader()
    return next(node for node in cluster if node is not leader)


def elsewhere(node: EtcdNode, cluster: EtcdCluster) -> EtcdBackend:
    return from_url("etcd://" + ",".join(other.address for other in cluster if other is not node))


@pytest.mark.faults
@pytest.mark.parametrize("moved", [True, False], ids=["after requests moved on", "with nothing else to ask"])
async def test_a_free_lock_is_granted_soon_although_the_member_that_watched_it_is_frozen(
    moved: bool, etcd_cluster: EtcdCluster
) -> None:
    """Keep-alives are of no help: there are none for half a minute, or they went to another member."""
    node = await follower(etcd_cluster)
    backend, holder = waiter_on(node, etcd_cluster), elsewhere(node, etcd_cluster)
    first = claim("streams:held", ttl=90)
    await holder.acquire(first)
    waiting = asyncio.create_task(backend.acquire(claim("streams:held", ttl=90)))
    await until(lambda: backend.stats.watches == 1, "waiting")
    if moved:
        # As after a reply of "leader changed": the stream itself has noticed nothing.
        backend._connection.leave(backend._connection.member())
        await asyncio.sleep(0.2)
    node.pause()
    await holder.release(first)
    async with asyncio.timeout(15):
        await waiting
    node.resume()
    await backend.aclose()
    await holder.aclose()


@pytest.mark.faults
async def test_watches_follow_the_requests_to_another_member(etcd_cluster: EtcdCluster) -> None:
    node = await follower(etcd_cluster)
    backend, holder = waiter_on(node, etcd_cluster), elsewhere(node, etcd_cluster)
    first = claim("streams:follow", ttl=90)
    await holder.acquire(first)
    waiting = asyncio.create_task(backend.acquire(claim("streams:follow", ttl=90)))
    stream = backend._watcher._stream

    def at() -> str | None:
        return stream.member.endpoint if stream.member is not None else None

    await until(lambda: backend.stats.watches == 1 and at() == node.address, "waiting")
    backend._connection.leave(backend._connection.member())
    assert backend.endpoint != node.address
    await until(lambda: at() == backend.endpoint, "the watches came along")
    await holder.release(first)
    async with asyncio.timeout(15):
        await waiting
    await backend.aclose()
    await holder.aclose()


async def test_a_quiet_stream_is_not_taken_for_a_silent_one(etcd_url: str) -> None:
    """A watch on which nothing happens stays where it is, for as long as the server answers."""
    backend, holder = from_url(etcd_url, attempt_timeout=0.5), from_url(etcd_url)
    first = claim("streams:quiet", ttl=90)
    await holder.acquire(first)
    waiting = asyncio.create_task(backend.acquire(claim("streams:quiet", ttl=90)))
    await until(lambda: backend.stats.watches == 1, "waiting")
    before = backend.commands
    await until(lambda: backend.commands >= before + 3, "the server was asked whether it is there")
    assert backend.stats.failovers == 0
    await holder.release(first)
    async with asyncio.timeout(15):
        await waiting
    assert backend.stats.failovers == 0
    await backend.aclose()
    await holder.aclose()
