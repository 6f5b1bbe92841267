"""Two hundred contenders on one key: what a section costs on the wire, and that nothing is left of it."""

import asyncio

from asyncdlock._local_queue import LocalQueue
from asyncdlock.backends.etcd import EtcdBackend, from_url
from asyncdlock.backends.zookeeper import ZooKeeperBackend
from harness.servers import EtcdCluster
from tests.backends.etcd_probe import Probe
from tests.backends.support import claim, until
from tests.backends.zookeeper_probe import kazoo_client, opened, queue_of, watched_paths, watches_of

CONTENDERS = 200
SECTIONS = 1000


async def contend(queues: list[LocalQueue], key: str) -> None:
    """`SECTIONS` sections of all contenders together, spread over the processes that `queues` stand for."""
    fences: list[int] = []

    async def repeat(queue: LocalQueue) -> None:
        for _ in range(SECTIONS // CONTENDERS):
            mine = claim(key)
            fences.append((await queue.acquire(mine)).fence)
            assert await queue.release(mine) is True

    await asyncio.gather(*(repeat(queues[number % len(queues)]) for number in range(CONTENDERS)))
    assert fences == sorted(set(fences))
    assert len(fences) == SECTIONS


async def test_etcd_carries_a_release_and_the_next_claim_in_one_request(
    etcd_url: str, shared_etcd: EtcdCluster, key: str
) -> None:
    backend, probe = from_url(etcd_url), Probe(shared_etcd[0])
    leases = await probe.leases()
    await contend([LocalQueue(backend, handoffs=0)], key)
    # The first contender has two leases granted and sends alone; keep-alives go along now and then.
    assert backend.commands <= 1.05 * SECTIONS + 10
    assert backend.stats.watch_events == 0, "nobody waits for a neighbour of the same process"
    await _etcd_is_clean(backend, probe, key, leases)


async def test_zookeeper_carries_a_release_and_the_next_claim_in_one_write(
    zookeeper_url: str, key: str
) -> None:
    """A delete, a create and a listing: three requests, of which nobody waits for the first."""
    async with opened(zookeeper_url) as backend:
        await contend([LocalQueue(backend, handoffs=0)], key)
        assert backend.commands <= 3.05 * SECTIONS + 10
        assert backend.events == 0, "nobody waits for a neighbour of the same process"
        await _zookeeper_is_clean([backend], zookeeper_url, key)


async def test_etcd_keeps_nothing_of_clients_that_took_turns(
    etcd_url: str, shared_etcd: EtcdCluster, key: str
) -> None:
    one, two, probe = from_url(etcd_url), from_url(etcd_url), Probe(shared_etcd[0])
    leases = await probe.leases()
    await contend([LocalQueue(backend, handoffs=0) for backend in (one, two)], key)
    assert one.stats.watch_events + two.stats.watch_events <= SECTIONS, "one release wakes one"
    await two.aclose()
    await _etcd_is_clean(one, probe, key, leases)


async def test_zookeeper_keeps_nothing_of_clients_that_took_turns(zookeeper_url: str, key: str) -> None:
    async with opened(zookeeper_url) as one, opened(zookeeper_url) as two:
        await contend([LocalQueue(backend, handoffs=0) for backend in (one, two)], key)
        assert one.events + two.events <= SECTIONS, "one release wakes one"
        await _zookeeper_is_clean([one, two], zookeeper_url, key)


async def _etcd_is_clean(backend: EtcdBackend, probe: Probe, key: str, leases: set[int]) -> None:
    """No key and no watch while the client is open, two leases at most; and no lease once it is closed."""
    assert backend.places() == ()
    assert backend.stats.watches == 0
    assert backend.stats.leases <= 2, "one that is given back, one for who comes next"
    assert await probe.queue(key) == []
    await backend.aclose()
    await until(lambda: _revoked(probe, leases), "its leases are revoked")


async def _revoked(probe: Probe, leases: set[int]) -> bool:
    return await probe.leases() <= leases


async def _zookeeper_is_clean(backends: list[ZooKeeperBackend], url: str, key: str) -> None:
    for backend in backends:
        assert not backend._places
        assert watches_of(backend) == 0
        assert len(backend._sessions.open) == 1
    with kazoo_client(url) as kazoo:
        assert queue_of(kazoo, key) == []
        assert key not in watched_paths(kazoo)
