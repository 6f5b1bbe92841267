"""A server that is killed (kill -9) and started again on its data: all that keep it, by the same rules."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from asyncdlock import BackendError, Handle, LockClient, LockLost, connect
from harness import servers
from harness.servers import EtcdCluster, PostgresNode, Server, ZooKeeperEnsemble
from tests.backends.etcd_probe import Probe
from tests.backends.postgres_probe import claims
from tests.backends.support import until
from tests.backends.zookeeper_probe import kazoo_client, queue_of, watched_paths

pytestmark = pytest.mark.faults


class Restartable(ABC):
    """One server, and what it knows of our locks."""

    def __init__(self, group: EtcdCluster | ZooKeeperEnsemble | PostgresNode) -> None:
        self._server: Server = group.nodes[0]
        self.url = group.url

    def kill(self) -> None:
        self._server.kill()

    async def start(self) -> None:
        await self._server.start()

    @abstractmethod
    async def left(self, key: str) -> list[str]:
        """Places in the queue of `key`, and whatever else clients have open on the server."""

    async def waits(self, key: str, places: int) -> None:
        async def queued() -> bool:
            return len([what for what in await self.left(key) if key in what]) >= places

        await until(queued, f"{places} places for {key!r}")


class Etcd(Restartable):
    def __init__(self, group: EtcdCluster) -> None:
        super().__init__(group)
        self._probe = Probe(group[0])

    async def left(self, key: str) -> list[str]:
        places = [entry.key for entry in await self._probe.queue(key)]
        leases = [f"lease {lease:x}" for lease in await self._probe.leases()]
        return places + leases + ["watch"] * await self._probe.watchers()


class Postgres(Restartable):
    async def left(self, key: str) -> list[str]:
        return [f"{key}/{owner}" for owner in await claims(self.url, key)]


class ZooKeeper(Restartable):
    async def left(self, key: str) -> list[str]:
        return await asyncio.to_thread(self._look, key)

    def _look(self, key: str) -> list[str]:
        with kazoo_client(self.url) as kazoo:
            return [f"{key}/{node}" for node in queue_of(kazoo, key)] + watched_paths(kazoo).split()


@asynccontextmanager
async def running(kind: str) -> AsyncIterator[Restartable]:
    if kind == "etcd":
        # The system's: the wheel's 3.5.1 must not be killed and trusted (etcd #13766).
        async with servers.etcd(flavour="system", heartbeat_ms=50, election_ms=500) as cluster:
            yield Etcd(cluster)
    elif kind == "postgres":
        async with servers.postgres() as node:
            yield Postgres(node)
    else:
        async with servers.zookeeper() as ensemble:
            yield ZooKeeper(ensemble)


@pytest.fixture(params=["etcd", "zookeeper", "postgres"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Restartable]:
    async with running(request.param) as server:
        yield server


async def renewed(handle: Handle) -> bool:
    """Whether the server confirms the lease; one that it calls lost fails the test."""
    try:
        await handle.renew()
    except LockLost:
        raise
    except BackendError:
        return False
    return True


async def give_back(handle: Handle) -> None:
    while True:
        try:
            await handle.release()
            return
        except BackendError:
            await asyncio.sleep(0.05)


async def test_a_lease_survives_a_restart_and_those_who_wait_keep_waiting(
    server: Restartable, key: str
) -> None:
    """The waiters, of this process and of another client, are served in their order."""
    async with connect(server.url) as one, connect(server.url) as two:
        held = await one.acquire(key, ttl=20.0)
        first = asyncio.create_task(two.acquire(key, ttl=20.0))
        await server.waits(key, 2)
        second = asyncio.create_task(one.acquire(key, ttl=20.0))

        server.kill()
        with pytest.raises(BackendError):
            await asyncio.wait_for(held.renew(), 10.0)
        assert held.held, "no answer is no loss"
        await server.start()

        await until(lambda: renewed(held), "the lease is confirmed again")
        assert not first.done()
        assert await held.release() is True
        async with asyncio.timeout(30):
            next_one = await first
            assert await next_one.release() is True
            last = await second
        assert held.fence < next_one.fence < last.fence
        assert await last.release() is True
    assert await server.left(key) == []


async def test_readers_and_permits_survive_a_restart(server: Restartable, key: str) -> None:
    """The writer behind the readers and the third of two permits go on waiting, and are served in the end."""
    async with connect(server.url) as one, connect(server.url) as two:
        readers = [await locks.acquire(key, ttl=20.0, shared=True) for locks in (one, two)]
        writer = asyncio.create_task(two.acquire(key, ttl=20.0))
        await server.waits(key, 3)
        pool = f"{key}-pool"
        permits = [await locks.semaphore(pool, permits=2).acquire(ttl=20.0) for locks in (one, two)]
        third = asyncio.create_task(one.semaphore(pool, permits=2).acquire(ttl=20.0))
        await server.waits(pool, 3)

        server.kill()
        await server.start()

        for handle in (*readers, *permits):
            await until(lambda handle=handle: renewed(handle), "the lease is confirmed again")  # type: ignore[misc]
        assert not writer.done()
        assert not third.done()
        async with asyncio.timeout(60):
            await give_back(permits[0])
            await give_back(await third)
            await give_back(permits[1])
            for reader in readers:
                await give_back(reader)
            last = await writer
        assert last.fence > max(reader.fence for reader in readers)
        assert await last.release() is True
    await until(lambda: nothing_left(server, key), "nothing is left")


async def test_a_lease_that_ends_while_the_server_is_away_is_reported_lost(
    server: Restartable, key: str
) -> None:
    async with connect(server.url) as one, connect(server.url) as two:
        with pytest.raises(LockLost):
            async with one.hold(key, ttl=2.0) as handle:
                server.kill()
                await asyncio.sleep(60)
        assert not handle.held
        await server.start()
        async with asyncio.timeout(30):
            successor = await two.acquire(key, ttl=2.0)
        assert successor.fence > handle.fence
        assert await handle.release() is False
        await successor.renew()
        assert await successor.release() is True
    await until(lambda: nothing_left(server, key), "nothing is left")


async def test_fences_grow_across_restarts_under_load_and_nothing_is_left(
    server: Restartable, key: str
) -> None:
    fences: list[int] = []
    inside: set[int] = set()
    stop = asyncio.Event()

    async def contend(locks: LockClient) -> None:
        while not stop.is_set():
            try:
                handle = await locks.acquire(key, ttl=20.0)
            except BackendError:
                continue
            assert not inside, "two hold the lock"
            inside.add(handle.fence)
            fences.append(handle.fence)
            await asyncio.sleep(0.001)
            inside.remove(handle.fence)
            await give_back(handle)

    async with connect(server.url) as one, connect(server.url) as two:
        tasks = [asyncio.create_task(contend(locks)) for locks in (one, two) for _ in range(10)]
        for _ in range(2):
            served = len(fences)
            await until(lambda served=served: len(fences) > served + 30, "the lock changes hands")  # type: ignore[misc]
            server.kill()
            await server.start()
        served = len(fences)
        await until(lambda: len(fences) > served + 30, "the lock changes hands again")
        stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)
    assert fences == sorted(set(fences))
    await until(lambda: nothing_left(server, key), "nothing is left")


async def nothing_left(server: Restartable, key: str) -> bool:
    return await server.left(key) == []
