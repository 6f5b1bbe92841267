"""Members that die, freeze or ask for passwords: the lock goes on, or says clearly why not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from asyncdlock.backends.etcd import EtcdBackend, from_url
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim, LeaseState
from harness import servers
from harness.servers import EtcdCluster, EtcdNode
from harness.servers.etcd_cluster import EtcdFlavour
from tests.backends.etcd_probe import Probe, Proxy
from tests.backends.support import claim, until


@contextlib.asynccontextmanager
async def client(url: str, **options: object) -> AsyncIterator[EtcdBackend]:
    backend = from_url(url, **options)
    try:
        yield backend
    finally:
        await backend.aclose()


def connected(backend: EtcdBackend, cluster: EtcdCluster) -> EtcdNode:
    """The member that the backend talks to."""
    return next(node for node in cluster if node.address == backend.endpoint)


def another(node: EtcdNode, cluster: EtcdCluster) -> EtcdNode:
    return next(other for other in cluster if other is not node)


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_holders_and_waiters_move_to_another_member(fault: str, etcd_cluster: EtcdCluster) -> None:
    async with client(etcd_cluster.url) as backend, client(etcd_cluster.url) as other:
        theirs = claim("cluster:held", ttl=10)
        held = await backend.acquire(claim("cluster:kept", ttl=10))
        first = await other.acquire(theirs)
        waiting = asyncio.create_task(backend.acquire(claim("cluster:held", ttl=10)))
        await until(lambda: backend.stats.watches == 1, "waiting")
        node = connected(backend, etcd_cluster)
        node.kill() if fault == "kill" else node.pause()

        async with asyncio.timeout(30):
            while (await backend.renew([held])) != [LeaseState.RENEWED]:
                await asyncio.sleep(0.1)
            assert backend.endpoint != node.address
            assert backend.stats.failovers >= 1
            await other.release(theirs)
            assert (await waiting).fence > first.fence
            mine = claim("cluster:new", ttl=10)
            await backend.acquire(mine)
            await backend.release(mine)
        if fault == "pause":
            node.resume()


@pytest.mark.faults
async def test_a_waiter_on_a_frozen_member_keeps_its_place(etcd_cluster: EtcdCluster) -> None:
    """Nothing but an unanswered keep-alive tells it to move, and that has to be in time for its lease."""
    frozen = another(await etcd_cluster.leader(), etcd_cluster)
    probe = Probe(await etcd_cluster.leader())
    elsewhere = "etcd://" + ",".join(node.address for node in etcd_cluster if node is not frozen)
    backend = from_url(etcd_cluster.url)
    while backend.endpoint != frozen.address:  # a client starts with any member
        backend = from_url(etcd_cluster.url)
    async with client(elsewhere) as holder:
        first = await holder.acquire(claim("cluster:frozen", ttl=60))
        waiting = asyncio.create_task(backend.acquire(claim("cluster:frozen", ttl=6)))
        await until(lambda: backend.stats.watches == 1, "waiting")
        place = (await probe.queue("cluster:frozen"))[1]
        frozen.pause()
        await until(lambda: backend.endpoint != frozen.address, "it has moved")
        await asyncio.sleep(6)  # the lease would be gone by now
        await holder.release(first.claim)
        async with asyncio.timeout(30):
            assert (await waiting).fence == place.mod_revision
        await backend.aclose()
        frozen.resume()


@pytest.mark.faults
async def test_the_leader_dies_under_load_and_no_two_hold_a_lock(etcd_cluster: EtcdCluster) -> None:
    """Grants come in the order of their fences, waiters go on, and nothing is left at the end."""
    leader = await etcd_cluster.leader()
    probe = Probe(another(leader, etcd_cluster))
    granted: dict[str, list[int]] = {"cluster:a": [], "cluster:b": []}
    holders = dict.fromkeys(granted, 0)
    stop = asyncio.Event()

    async def contend(backend: EtcdBackend, key: str) -> None:
        while not stop.is_set():
            mine = claim(key, ttl=10)
            try:
                grant = await backend.acquire(mine)
            except BackendError as error:
                if not error.definite:
                    await give_back(backend, mine)
                continue
            holders[key] += 1
            assert holders[key] == 1, "two tasks hold the lock"
            granted[key].append(grant.fence)
            await asyncio.sleep(0.001)
            holders[key] -= 1
            await give_back(backend, mine)

    async def give_back(backend: EtcdBackend, mine: Claim) -> None:
        while True:
            try:
                await backend.release(mine)
                return
            except BackendError:
                await asyncio.sleep(0.05)

    async with client(etcd_cluster.url) as one, client(etcd_cluster.url) as two:
        pairs = [(backend, key) for backend in (one, two) for key in granted] * 5
        tasks = [asyncio.create_task(contend(backend, key)) for backend, key in pairs]
        await until(lambda: all(len(fences) > 20 for fences in granted.values()), "under load")
        leader.kill()
        reached = {key: len(fences) for key, fences in granted.items()}
        await until(lambda: all(len(granted[key]) > reached[key] + 50 for key in granted), "the load goes on")
        stop.set()
        await asyncio.gather(*tasks)
        assert one.stats.watches == two.stats.watches == 0
    for key, fences in granted.items():
        assert fences == sorted(set(fences))
        assert await probe.queue(key) == []
    assert await probe.leases() == set()


async def test_a_server_that_is_not_there_is_a_clear_and_definite_error() -> None:
    async with client("etcd://127.0.0.1:1", timeout=0.2) as backend:
        for verb in (backend.acquire, backend.try_acquire):
            mine = claim("cluster:nowhere")
            with pytest.raises(
                BackendUnavailable, match=r"no etcd member of 127\.0\.0\.1:1 answered"
            ) as failed:
                await verb(mine)
            assert failed.value.definite is True
            assert await backend.release(mine) is False
        assert backend.stats.leases == 0


@pytest.mark.faults
async def test_a_server_that_dies_under_a_holder_is_unknown_not_lost(etcd_server: EtcdCluster) -> None:
    async with client(etcd_server.url, timeout=1.0, attempt_timeout=0.5) as backend:
        held = await backend.acquire(claim("cluster:unknown", ttl=30))
        etcd_server[0].kill()
        assert await backend.renew([held]) == [LeaseState.UNKNOWN]
        await etcd_server[0].start()

        async def renewed() -> bool:
            state = await backend.renew([held])
            assert state != [LeaseState.LOST]
            return state == [LeaseState.RENEWED]

        await until(renewed, "the server is back and has kept the lock")
        assert await backend.release(held.claim) is True


@pytest.mark.faults
async def test_requests_behind_those_that_nobody_answers_fail_with_them(etcd_server: EtcdCluster) -> None:
    """However many there are: only so many are sent at a time, and each group waits for `timeout`."""
    backend = from_url(etcd_server.url, timeout=1.0, attempt_timeout=1.0)
    claims = [claim(f"many:{number}", ttl=60.0) for number in range(700)]
    await asyncio.gather(*map(backend.acquire, claims))
    etcd_server[0].pause()
    try:
        failures = await asyncio.gather(*map(backend.release, claims), return_exceptions=True)
        assert all(isinstance(failure, BackendUnavailable) for failure in failures)
        # Those that were not even sent certainly did not happen.
        assert {getattr(failure, "definite", None) for failure in failures} == {True, False}
    finally:
        etcd_server[0].resume()
        await backend.aclose()


async def test_a_watch_that_comes_back_after_a_compaction_misses_nothing(
    etcd_server: EtcdCluster,
) -> None:
    """The history that it would resume from is gone: it must look again, not sleep on."""
    probe = Probe(etcd_server[0])
    async with (
        Proxy(etcd_server[0]).running() as proxy,
        client(etcd_server.url) as holder,
        client(f"etcd://127.0.0.1:{proxy.port}") as backend,
    ):
        first = claim("cluster:compact", ttl=30)
        await holder.acquire(first)
        waiting = asyncio.create_task(backend.acquire(claim("cluster:compact", ttl=30)))
        await until(lambda: backend.stats.watches == 1, "waiting")
        proxy.refusing = True
        proxy.cut()
        await holder.release(first)
        for _ in range(3):
            await probe.put("/elsewhere", "x", 0)
        status = await etcd_server[0].call("maintenance/status")
        await etcd_server[0].call("kv/compaction", {"revision": status["header"]["revision"]})
        proxy.refusing = False
        async with asyncio.timeout(30):
            await waiting
        assert backend.stats.watch_events == 0, "there was no event to hear of"


async def test_user_and_password() -> None:
    async with servers.etcd(password="root-secret", users={"al:ice": "s@cret/?"}) as cluster:
        async with client(cluster.url_for("al:ice")) as backend, client(cluster.url) as root:
            await pass_a_lock(backend, root)
            # Tokens die with the member that keeps them: everybody signs in again.
            await cluster[0].restart()
            await pass_a_lock(backend, root)

        async with client(f"etcd://root:wrong@{cluster.addresses}") as stranger:
            with pytest.raises(BackendError, match="invalid user ID or password") as refused:
                await stranger.acquire(claim("cluster:auth"))
            assert "wrong" not in str(refused.value)
        async with client(f"etcd://{cluster.addresses}") as nobody:
            with pytest.raises(BackendError, match="user name is empty"):
                await nobody.acquire(claim("cluster:auth"))


async def test_a_password_is_no_hindrance_where_none_is_asked_for(etcd_url: str) -> None:
    async with client(etcd_url.replace("etcd://", "etcd://me:sesame@")) as backend:
        mine = claim("cluster:unasked")
        await backend.acquire(mine)
        assert await backend.release(mine) is True


@pytest.mark.parametrize("flavour", ["system", "wheel"])
async def test_a_token_that_expires_under_an_open_stream_is_replaced(flavour: EtcdFlavour) -> None:
    """Both versions refuse the next watch on that stream, each in a way of its own."""
    options = ["--auth-token-ttl=1"]
    async with servers.etcd(password="root-secret", flavour=flavour, options=options) as cluster:
        async with client(cluster.url) as one, client(cluster.url) as two:
            await pass_a_lock(one, two)
            await asyncio.sleep(2.5)  # the server's clock decides, and nothing tells
            await pass_a_lock(one, two)


async def pass_a_lock(holder: EtcdBackend, waiter: EtcdBackend) -> None:
    """Hold, renew, wait behind, hand on."""
    first, second = claim("cluster:auth", ttl=30), claim("cluster:auth", ttl=30)
    async with asyncio.timeout(30):
        grant = await holder.acquire(first)
        waiting = asyncio.create_task(waiter.acquire(second))
        await until(lambda: waiter.stats.watches == 1, "waiting")
        assert await holder.renew([grant]) == [LeaseState.RENEWED]
        await holder.release(first)
        assert (await waiting).fence > grant.fence
        await waiter.release(second)


async def test_tls_with_certificates_on_both_sides() -> None:
    async with servers.etcd(tls="mutual") as cluster:
        async with client(cluster.url) as backend:
            mine = claim("cluster:tls")
            await backend.acquire(mine)
            assert await backend.release(mine) is True
        assert cluster.certificates is not None
        plain = f"etcds://{cluster.addresses}?timeout=0.5&ca_file={cluster.certificates.ca}"
        async with client(plain) as anonymous:
            with pytest.raises(BackendUnavailable):
                await anonymous.acquire(claim("cluster:tls"))
    async with client("etcds://127.0.0.1:1?ca_file=/no/such/ca.pem") as backend:
        with pytest.raises(BackendError, match=r"/no/such/ca\.pem cannot be read"):
            await backend.acquire(claim("cluster:tls"))
