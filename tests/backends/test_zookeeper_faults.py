"""`zookeeper://` when replies are lost, connections break, sessions expire and servers die."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from asyncdlock import connect
from asyncdlock.backends.zookeeper import ZooKeeperBackend
from asyncdlock.backends.zookeeper.names import parent_of
from asyncdlock.backends.zookeeper.queues import listing
from asyncdlock.errors import BackendUnavailable, LockLost
from asyncdlock.types import LeaseState, validity
from harness import servers
from harness.faults import open_link
from tests.backends.support import claim, until
from tests.backends.zookeeper_probe import opened, queue_of, watches_of

pytestmark = pytest.mark.faults

TTL = 1.0


class Link:
    """The only way from a client to a server: it can swallow what either says, and be cut."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = host, int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.requests_pass = asyncio.Event()
        self.replies_pass = asyncio.Event()
        self.restore()

    async def listen(self) -> str:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._listener.sockets[0].getsockname()
        return f"zookeeper://{host}:{port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._server)
        self._writers |= {writer, back}
        for source, sink, gate in ((reader, back, self.requests_pass), (there, writer, self.replies_pass)):
            pump = asyncio.create_task(self._pump(source, sink, gate))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                await gate.wait()
                sink.write(data)
        sink.close()

    def silence(self) -> None:
        """Nothing passes, and nobody notices at once."""
        self.requests_pass.clear()
        self.replies_pass.clear()

    def cut(self) -> None:
        """Break every connection; what was under way is lost."""
        for pump in self._pumps:
            pump.cancel()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def restore(self) -> None:
        self.requests_pass.set()
        self.replies_pass.set()

    async def aclose(self) -> None:
        self._listener.close()
        self.cut()
        await asyncio.gather(*self._pumps, return_exceptions=True)


@pytest.fixture
async def link(shared_zookeeper: servers.ZooKeeperEnsemble) -> AsyncIterator[Link]:
    link = Link(shared_zookeeper[0].address)
    yield link
    await link.aclose()


@pytest.fixture
async def backend(link: Link) -> AsyncIterator[ZooKeeperBackend]:
    async with opened(await link.listen()) as backend:
        yield backend
        link.restore()


# Lost replies


async def test_a_lost_reply_finds_its_node_again(
    backend: ZooKeeperBackend, link: Link, kazoo: KazooClient, key: str
) -> None:
    """Not two nodes, of which the first would block the second."""
    await backend.acquire(claim("warm-up", TTL))
    mine = claim(key, TTL)
    link.replies_pass.clear()
    taking = asyncio.create_task(backend.acquire(mine))
    await until(lambda: len(queue_of(kazoo, key)) == 1, "the server makes the node")
    link.cut()
    link.restore()
    grant = await taking
    [node] = queue_of(kazoo, key)
    assert grant.fence == kazoo.exists(f"/locks/{key}/{node}").czxid
    assert await backend.release(mine)
    assert queue_of(kazoo, key) == []


async def test_a_cancelled_acquire_whose_reply_was_lost_is_undone(
    backend: ZooKeeperBackend, link: Link, kazoo: KazooClient, key: str
) -> None:
    await backend.acquire(claim("warm-up", TTL))
    mine = claim(key, TTL)
    link.replies_pass.clear()
    taking = asyncio.create_task(backend.acquire(mine))
    await until(lambda: len(queue_of(kazoo, key)) == 1, "the server makes the node")
    taking.cancel()
    await asyncio.wait([taking])
    releasing = asyncio.create_task(backend.release(mine))
    link.cut()
    link.restore()
    await releasing
    assert queue_of(kazoo, key) == []


async def test_a_cancelled_acquire_is_undone_behind_its_own_request_in_flight(
    backend: ZooKeeperBackend, link: Link, kazoo: KazooClient, key: str
) -> None:
    """The create has not even reached the server when the release is called."""
    await backend.acquire(claim("warm-up", TTL))
    mine = claim(key, TTL)
    link.requests_pass.clear()
    taking = asyncio.create_task(backend.acquire(mine))
    await asyncio.sleep(0.05)
    taking.cancel()
    await asyncio.wait([taking])
    releasing = asyncio.create_task(backend.release(mine))
    await asyncio.sleep(0.05)
    link.restore()
    await releasing
    assert queue_of(kazoo, key) == []
    assert not backend._places.keys() & {mine.owner}


async def test_a_release_whose_reply_was_lost_counts_as_done(
    backend: ZooKeeperBackend, link: Link, kazoo: KazooClient, key: str
) -> None:
    mine = claim(key, TTL)
    await backend.acquire(mine)
    link.replies_pass.clear()
    releasing = asyncio.create_task(backend.release(mine))
    await until(lambda: queue_of(kazoo, key) == [], "the server deletes the node")
    link.cut()
    link.restore()
    assert await releasing


async def test_a_lease_that_lapsed_was_not_released_by_its_holder(
    backend: ZooKeeperBackend, link: Link, kazoo: KazooClient, key: str
) -> None:
    """The client deletes a lapsed node itself. A release must not take that for its own deed."""
    mine = claim(key, TTL)
    await backend.acquire(mine)
    place = backend._places[mine.owner]
    link.replies_pass.clear()
    backend._lapse(place)
    await until(lambda: queue_of(kazoo, key) == [], "the server deletes the node")
    for dropping in backend._lapsing:
        dropping.cancel()
    await until(lambda: mine.owner in backend._places, "it is kept for whoever asks")
    link.restore()
    assert not await backend.release(mine)


# Suspended and expired


async def test_a_suspended_session_is_unknown_and_resumes(
    backend: ZooKeeperBackend, link: Link, kazoo: KazooClient, key: str
) -> None:
    grant = await backend.acquire(claim(key, TTL))
    before = queue_of(kazoo, key)
    link.silence()
    link.cut()
    await until(lambda: backend._sessions.open[TTL].wire_now() is None, "the client notices")
    assert list(await backend.renew([grant])) == [LeaseState.UNKNOWN]
    link.restore()
    await until(lambda: backend._sessions.open[TTL].wire_now() is not None, "the session goes on")
    assert list(await backend.renew([grant])) == [LeaseState.RENEWED]
    assert queue_of(kazoo, key) == before


async def test_a_session_that_expires_is_a_lost_lease(
    backend: ZooKeeperBackend, link: Link, zookeeper_url: str, key: str
) -> None:
    grant = await backend.acquire(claim(key, TTL))
    async with opened(zookeeper_url) as other:
        link.silence()
        successor = await other.acquire(claim(key, TTL))
        assert successor.fence > grant.fence
        link.restore()
        await until(lambda: backend._sessions.open[TTL].expired, "the client learns of it")
        assert list(await backend.renew([grant])) == [LeaseState.LOST]
        assert not await backend.release(grant.claim)
        assert list(await other.renew([successor])) == [LeaseState.RENEWED]
    await backend.acquire(claim(key, TTL))


async def test_a_body_learns_that_its_session_expired(link: Link, key: str) -> None:
    async with connect(await link.listen()) as locks:
        with pytest.raises(LockLost):
            async with locks.hold(key, ttl=TTL):
                link.silence()
                await asyncio.sleep(60)
        link.restore()


async def test_a_waiter_whose_session_expired_never_succeeds_by_its_old_place(
    backend: ZooKeeperBackend, link: Link, kazoo: KazooClient, zookeeper_url: str, key: str
) -> None:
    """It queues up again, behind those who came meanwhile."""
    async with opened(zookeeper_url) as other:
        first, second = claim(key, 10.0), claim(key, 10.0)
        await other.acquire(first)
        waiting = asyncio.create_task(backend.acquire(claim(key, TTL)))
        await until(lambda: len(queue_of(kazoo, key)) == 2, "the waiter queues")
        taking = asyncio.create_task(other.acquire(second))
        await until(lambda: len(queue_of(kazoo, key)) == 3, "another one queues behind it")
        link.silence()
        await until(lambda: len(queue_of(kazoo, key)) == 2, "the server expires the waiter")
        link.restore()
        await until(lambda: len(queue_of(kazoo, key)) == 3, "the waiter queues again")
        await other.release(first)
        held = await taking
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await other.release(second)
        assert (await waiting).fence > held.fence


async def test_a_loop_that_is_stuck_loses_its_session(zookeeper_url: str, key: str) -> None:
    """The heartbeat belongs to the loop that does the work; in a thread it would hide the stall."""
    async with opened(zookeeper_url) as backend, opened(zookeeper_url) as other:
        grant = await backend.acquire(claim(key, TTL))
        successor = asyncio.create_task(other.acquire(claim(key, 10.0)))
        await asyncio.sleep(0.1)
        time.sleep(2.5 * TTL)
        assert time.monotonic() > grant.expires_at
        assert (await successor).fence > grant.fence
        await until(lambda: backend._sessions.open[TTL].expired, "the client learns of it")
        assert list(await backend.renew([grant])) == [LeaseState.LOST]


async def test_a_lease_counts_from_before_it_was_asked_for(zookeeper_url: str, key: str) -> None:
    lag = 0.5
    async with open_link(zookeeper_url.removeprefix("zookeeper://")) as link:
        async with opened(f"zookeeper://{link.address}") as backend:
            warm_up = claim(f"{key}-warm-up", 10.0)
            await backend.acquire(warm_up)
            await backend.release(warm_up)
            link.lag(lag)
            grant = await backend.acquire(claim(key, 10.0))
            assert grant.expires_at <= time.monotonic() - lag + validity(10.0)
            link.mend()


async def test_a_short_stall_does_not_cost_the_connection(zookeeper_url: str, key: str) -> None:
    async with opened(zookeeper_url) as backend:
        grant = await backend.acquire(claim(key, 4.0))
        wire = backend._sessions.open[4.0].wire_now()
        time.sleep(2.5)
        await asyncio.sleep(0.5)
        assert backend._sessions.open[4.0].wire_now() is wire
        assert list(await backend.renew([grant])) == [LeaseState.RENEWED]


# Servers that stop


async def test_a_frozen_server_keeps_everybody_waiting_and_then_goes_on(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str
) -> None:
    async with opened(zookeeper_server.url) as backend:
        held = await backend.acquire(claim(key, 5.0))
        zookeeper_server[0].pause()
        waiting = asyncio.create_task(backend.acquire(claim(key, 5.0)))
        renewing = asyncio.create_task(backend.renew([held]))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert not renewing.done()
        zookeeper_server[0].resume()
        assert list(await renewing) == [LeaseState.RENEWED]
        assert await backend.release(held.claim)
        await waiting


async def test_a_server_that_stays_away_fails_those_who_wait_and_serves_again(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str
) -> None:
    async with opened(f"{zookeeper_server.url}?connect_timeout=0.5") as backend:
        await backend.acquire(claim(key, TTL))
        waiting = asyncio.create_task(backend.acquire(claim(key, TTL)))
        await asyncio.sleep(0.1)
        zookeeper_server[0].kill()
        with pytest.raises(BackendUnavailable, match="cannot reach ZooKeeper") as caught:
            await waiting
        assert not caught.value.definite
        await zookeeper_server[0].start()

        async def serves() -> bool:
            try:
                return (await backend.acquire(claim(key, 2.0))).fence > 0
            except BackendUnavailable:  # not within half a second
                return False

        await until(serves, "it serves again")


async def test_a_holder_survives_the_death_of_its_server(
    zookeeper_ensemble: servers.ZooKeeperEnsemble, key: str
) -> None:
    """The session moves to another member, with the lock, and those who wait keep their places."""
    ttl = 5.0
    async with opened(zookeeper_ensemble.url) as backend:
        grant = await backend.acquire(claim(key, ttl))
        waiting = asyncio.create_task(backend.acquire(claim(key, ttl)))
        await asyncio.sleep(0.2)
        host, port = backend._sessions.open[ttl]._hosts[-1]  # the one that was tried last
        [member] = [node for node in zookeeper_ensemble if node.address == f"{host}:{port}"]
        wire = backend._sessions.open[ttl].wire_now()
        member.kill()
        await until(lambda: backend._sessions.open[ttl].wire_now() is not wire, "the client notices")
        async with asyncio.timeout(30):
            while list(await backend.renew([grant])) != [LeaseState.RENEWED]:
                await asyncio.sleep(0.05)
        assert not waiting.done()
        assert await backend.release(grant.claim)
        assert (await waiting).fence > grant.fence


async def test_a_member_cut_off_from_its_leader_renews_nothing(
    zookeeper_ensemble: servers.ZooKeeperEnsemble, key: str
) -> None:
    """It still answers reads and pings: were those enough, the holder would trust a lease that is gone."""
    leader = await zookeeper_ensemble.leader()
    follower = next(node for node in zookeeper_ensemble if node is not leader)
    async with opened(f"zookeeper://{follower.address}") as backend:
        grant = await backend.acquire(claim(key, 10.0))
        assert list(await backend.renew([grant])) == [LeaseState.RENEWED]
        others = [node for node in zookeeper_ensemble if node is not follower]
        for node in others:
            node.pause()
        try:
            wire = backend._sessions.open[10.0].wire_now()
            assert wire is not None
            heard_at = wire.heard_at
            wire.ping()
            await until(lambda: wire.heard_at > heard_at, "the member answers a ping")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    assert list(await backend.renew([grant])) != [LeaseState.RENEWED]
        finally:
            for node in others:
                node.resume()


async def test_a_member_cut_off_from_its_leader_tells_nobody_that_it_is_first(
    zookeeper_ensemble: servers.ZooKeeperEnsemble, key: str
) -> None:
    """It would still list who came in front of whom; others may have had the lock since."""
    leader = await zookeeper_ensemble.leader()
    follower = next(node for node in zookeeper_ensemble if node is not leader)
    async with opened(f"zookeeper://{follower.address}") as backend:
        await backend.acquire(claim(key, 10.0))
        wire = backend._sessions.open[10.0].wire_now()
        assert wire is not None
        assert len(await listing(wire, parent_of(key))) == 1
        others = [node for node in zookeeper_ensemble if node is not follower]
        for node in others:
            node.pause()
        try:
            assert len(await wire.list(parent_of(key))) == 1, "it answers reads"
            with pytest.raises((TimeoutError, ConnectionLoss)):
                async with asyncio.timeout(1.0):
                    await listing(wire, parent_of(key))
        finally:
            for node in others:
                node.resume()


async def test_a_leader_killed_under_load_admits_no_two_holders_and_leaves_nothing(
    zookeeper_ensemble: servers.ZooKeeperEnsemble, key: str
) -> None:
    holders: set[str] = set()
    fences: list[int] = []
    stop = False

    async def contend(backend: ZooKeeperBackend) -> None:
        while not stop:
            mine = claim(key, 5.0)
            grant = await backend.acquire(mine)
            if time.monotonic() < grant.expires_at:
                assert not holders, "two holders"
                holders.add(mine.owner)
                fences.append(grant.fence)
                await asyncio.sleep(0.001)
                holders.remove(mine.owner)
            await backend.release(mine)

    async with opened(zookeeper_ensemble.url) as one, opened(zookeeper_ensemble.url) as two:
        tasks = [asyncio.create_task(contend(backend)) for backend in (one, two) for _ in range(5)]
        await until(lambda: len(fences) > 50, "the lock changes hands")
        leader = await zookeeper_ensemble.leader()
        leader.kill()
        served = len(fences)
        await until(lambda: len(fences) > served + 50, "the lock changes hands again")
        stop = True
        await asyncio.gather(*tasks)
        assert not one._places
        assert watches_of(one) == watches_of(two) == 0
    assert fences == sorted(set(fences))
    await leader.start()
    async with opened(zookeeper_ensemble.url) as backend:
        assert await backend.try_acquire(claim(key, 5.0)) is not None
