"""`zookeeper://` on a real server: what stands there, who is served when, what is left behind."""

import asyncio
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

import asyncdlock
from asyncdlock import LockClient, connect
from asyncdlock.backend import open_backend
from asyncdlock.backends.zookeeper import FENCE_SCALE, ZooKeeperBackend
from asyncdlock.errors import AcquireTimeout, BackendError, BackendUnavailable, LockError
from asyncdlock.types import Claim, Grant, LeaseState
from harness import servers
from harness.servers.ports import free_port
from harness.servers.tls import make_certificates
from harness.servers.zookeeper_ensemble import ZooKeeperNode
from tests.backends.support import claim, until
from tests.backends.zookeeper_probe import kazoo_client, opened, queue_of, watched_paths, watches_of


@pytest.fixture
async def backend(zookeeper_url: str) -> AsyncIterator[ZooKeeperBackend]:
    async with opened(zookeeper_url) as backend:
        yield backend


# What stands on the server


async def test_the_node_is_named_and_filled_as_kazoo_does_it(
    backend: ZooKeeperBackend, kazoo: KazooClient, key: str
) -> None:
    mine = claim(key)
    grant = await backend.acquire(mine)
    [node] = queue_of(kazoo, key)
    data, stat = kazoo.get(f"/locks/{key}/{node}")
    assert node == mine.owner.replace("-", "") + "__lock__0000000000"
    assert data.decode() == mine.owner
    assert stat.ephemeralOwner != 0
    assert grant.fence == stat.czxid
    assert kazoo.Lock(f"/locks/{key}").contenders() == [mine.owner]
    assert await backend.release(mine)
    assert queue_of(kazoo, key) == []


async def test_keys_that_zookeeper_forbids_can_be_locked_and_stay_apart(backend: ZooKeeperBackend) -> None:
    prefix = uuid.uuid4().hex
    keys = [
        prefix + tail
        for tail in ("/", "//", "/.", "/..", "/a//b", "%2F", "\t", "😀", "/x__lock__0000000001", "")
    ]
    claims = [claim(key) for key in keys]
    grants = await asyncio.gather(*map(backend.acquire, claims))
    assert len({grant.fence for grant in grants}) == len(keys)
    assert all(await asyncio.gather(*map(backend.release, claims)))


async def test_an_uncontended_acquire_is_one_round_trip_and_a_release_one(
    backend: ZooKeeperBackend, key: str
) -> None:
    """A create and a listing in one write, then a delete."""
    first = claim(key)
    await backend.acquire(first)
    await backend.release(first)
    before = backend.commands
    second = claim(key)
    await backend.acquire(second)
    await backend.release(second)
    assert backend.commands - before == 3


async def test_fences_grow_over_clients_and_after_the_parent_was_removed(
    zookeeper_url: str, kazoo: KazooClient, key: str
) -> None:
    """Sequence numbers start again when the server removed an empty parent; fences do not."""
    fences = []
    for _ in range(3):
        async with opened(zookeeper_url) as backend:
            mine = claim(key)
            fences.append((await backend.acquire(mine)).fence)
            await backend.release(mine)
            kazoo.delete(f"/locks/{key}")
            fences.append((await backend.acquire(mine)).fence)
    assert fences == sorted(set(fences))


async def test_the_server_removes_an_empty_parent_unless_told_otherwise(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str
) -> None:
    """And the next acquisition makes it again."""
    zookeeper_server[0].environment["JAVA_TOOL_OPTIONS"] = "-Dznode.container.checkIntervalMs=100"
    await zookeeper_server[0].restart()
    url = zookeeper_server.url
    async with opened(url) as backend, opened(url, containers=False) as lasting:
        mine = claim(f"{key}/deep")
        with kazoo_client(url) as kazoo:
            for _ in range(2):
                await backend.acquire(mine)
                await backend.release(mine)
                await until(lambda: not kazoo.exists(f"/locks/{key}"), "the server removes the parents")
            await lasting.acquire(mine)
            await lasting.release(mine)
            await asyncio.sleep(0.5)
            assert kazoo.exists(f"/locks/{key}/deep")


async def test_a_chroot_is_created_and_kept_to(zookeeper_url: str, kazoo: KazooClient, key: str) -> None:
    async with opened(f"{zookeeper_url}/{key}/deep") as backend:
        mine = claim("k")
        await backend.acquire(mine)
        assert len(kazoo.get_children(f"/{key}/deep/locks/k")) == 1
        await backend.release(mine)


async def test_credentials_close_the_queue_to_everybody_else(zookeeper_url: str, key: str) -> None:
    hosts = zookeeper_url.removeprefix("zookeeper://")
    async with (
        opened(f"zookeeper://me:pass@{hosts}/{key}") as mine,
        opened(f"zookeeper://{hosts}/{key}") as other,
    ):
        held = claim("k")
        await mine.acquire(held)
        with pytest.raises(BackendError, match="check the URL's password"):
            await other.acquire(claim("k"))
        assert await mine.release(held)
    async with opened(f"zookeeper://{hosts}/{key}", user="me", password="pass") as again:
        await again.acquire(claim("k"))


class TlsNode(ZooKeeperNode):
    """A server that speaks TLS on a second port and asks clients for a certificate."""

    def __init__(self) -> None:
        super().__init__(1, tick_ms=100)
        self._classpath += os.pathsep + "/usr/share/java/netty-codec.jar"  # Debian leaves it out
        self.secure_port = free_port()
        self.certificates = make_certificates(self.folder)
        self._identity = self.folder / "identity.pem"
        self._identity.write_text(self.certificates.key.read_text() + self.certificates.cert.read_text())

    def _settings(self) -> list[str]:
        return [
            *super()._settings(),
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={self.secure_port}",
            f"ssl.keyStore.location={self._identity}",
            f"ssl.trustStore.location={self.certificates.ca}",
        ]


async def test_tls_with_certificates_on_both_sides(key: str) -> None:
    async with servers.running(TlsNode) as node:
        url, files = f"zookeeper://127.0.0.1:{node.secure_port}?tls=true&connect_timeout=2", node.certificates
        async with opened(url, ca_file=files.ca, cert_file=files.cert, key_file=files.key) as backend:
            mine = claim(key)
            await backend.acquire(mine)
            assert await backend.release(mine)
        async with opened(url) as stranger:
            with pytest.raises(BackendUnavailable, match="certificate verify failed"):
                await stranger.acquire(claim(key))


# Exclusion and order


async def test_try_acquire_leaves_no_place_when_another_holds(
    backend: ZooKeeperBackend, kazoo: KazooClient, key: str
) -> None:
    held = claim(key)
    await backend.acquire(held)
    assert await backend.try_acquire(claim(key)) is None
    assert len(queue_of(kazoo, key)) == 1
    await backend.release(held)
    taken = await backend.try_acquire(claim(key))
    assert taken is not None


async def test_kazoo_and_asyncdlock_are_served_in_arrival_order_mixed(
    zookeeper_url: str, kazoo: KazooClient, key: str
) -> None:
    """Fifty of each in one queue: nobody overlaps, nobody overtakes."""
    rounds = 50
    served: list[int] = []
    inside = threading.Lock()
    path = f"/locks/{key}"

    def hold(number: int) -> None:
        assert inside.acquire(blocking=False), "two holders"
        served.append(number)
        inside.release()

    def kazoo_worker(number: int) -> None:
        lock = kazoo.Lock(path)
        lock.acquire()
        hold(number)
        lock.release()

    async def our_worker(backend: ZooKeeperBackend, number: int) -> None:
        mine = claim(key)
        await backend.acquire(mine)
        hold(number)
        await backend.release(mine)

    async with opened(zookeeper_url) as backend:
        gate = claim(key)
        await backend.acquire(gate)
        threads, tasks = [], []
        for number in range(2 * rounds):
            if number % 2:
                tasks.append(asyncio.create_task(our_worker(backend, number)))
            else:
                threads.append(threading.Thread(target=kazoo_worker, args=(number,)))
                threads[-1].start()
            await until(lambda number=number: len(queue_of(kazoo, key)) == number + 2, "the next one queues")  # type: ignore[misc]
        await backend.release(gate)
        await asyncio.gather(*tasks)
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert served == list(range(2 * rounds))


async def test_a_reader_of_kazoo_is_waited_for(
    backend: ZooKeeperBackend, kazoo: KazooClient, key: str
) -> None:
    reader = kazoo.ReadLock(f"/locks/{key}")
    reader.acquire()
    waiting = asyncio.create_task(backend.acquire(claim(key)))
    await until(lambda: len(queue_of(kazoo, key)) == 2, "the writer queues")
    assert not waiting.done()
    reader.release()
    await waiting


async def test_readers_and_writers_of_kazoo_and_ours_stand_in_one_queue(
    zookeeper_url: str, kazoo: KazooClient, key: str
) -> None:
    """Twenty of each, readers and writers in turn: no writer with anybody else, readers with each other."""
    path = f"/locks/{key}"
    guard = threading.Lock()
    inside: list[str] = []
    wrong: list[list[str]] = []
    company: set[frozenset[str]] = set()

    def enter(who: str) -> None:
        with guard:
            inside.append(who)
            if len(inside) > 1 and any("writer" in one for one in inside):
                wrong.append(list(inside))
            company.add(frozenset(one.split()[0] for one in inside))

    def leave(who: str) -> None:
        with guard:
            inside.remove(who)

    def theirs(number: int) -> None:
        shared = number % 4 != 0
        lock = kazoo.ReadLock(path) if shared else kazoo.WriteLock(path)
        who = f"kazoo {'reader' if shared else 'writer'} {number}"
        with lock:
            enter(who)
            time.sleep(0.05)
            leave(who)

    async def ours(client: LockClient, number: int) -> None:
        shared = number % 4 != 0
        who = f"ours {'reader' if shared else 'writer'} {number}"
        async with client.hold(key, shared=shared, timeout=60.0):
            enter(who)
            await asyncio.sleep(0.05)
            leave(who)

    async with connect(zookeeper_url, local_queue=False) as client:
        gate = await client.acquire(key)
        threads = [threading.Thread(target=theirs, args=(number,)) for number in range(20)]
        tasks = []
        for number, thread in enumerate(threads):
            thread.start()
            tasks.append(asyncio.create_task(ours(client, number)))
            await until(lambda: len(queue_of(kazoo, key)) == 2 * len(tasks) + 1, "the next two queue")
        assert inside == []
        assert await gate.release()
        await asyncio.gather(*tasks)
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert wrong == []
    assert frozenset({"ours", "kazoo"}) in company, "readers of both were never inside together"
    assert queue_of(kazoo, key) == []


async def test_our_readers_and_permits_are_readers_to_kazoo(
    zookeeper_url: str, kazoo: KazooClient, key: str
) -> None:
    reading, writing = kazoo.ReadLock(f"/locks/{key}"), kazoo.WriteLock(f"/locks/{key}")
    async with connect(zookeeper_url) as client:
        for ours in (client.acquire(key, shared=True), client.semaphore(key, permits=3).acquire()):
            holder = await ours
            assert reading.acquire(blocking=False)
            reading.release()
            assert not writing.acquire(blocking=False)
            assert await holder.release()
            assert writing.acquire(blocking=False)
            assert await client.try_acquire(key, shared=True) is None
            writing.release()


async def test_200_contenders_are_granted_in_queue_order(zookeeper_url: str, key: str) -> None:
    grants: list[Grant] = []
    async with opened(zookeeper_url) as one, opened(zookeeper_url) as two:

        async def contend(backend: ZooKeeperBackend) -> None:
            mine = claim(key)
            grants.append(await backend.acquire(mine))
            await backend.release(mine)

        await asyncio.gather(*(contend(one if number % 2 else two) for number in range(200)))
    fences = [grant.fence for grant in grants]
    assert fences == sorted(fences)
    assert len(set(fences)) == 200


async def test_one_release_wakes_one_of_a_thousand_waiters(backend: ZooKeeperBackend, key: str) -> None:
    """No herd: one watch event and one re-read of the queue for each hand-off."""
    held, granted = claim(key), asyncio.Queue[Claim]()
    await backend.acquire(held)
    waiters = [claim(key) for _ in range(1000)]

    async def wait(mine: Claim) -> None:
        granted.put_nowait((await backend.acquire(mine)).claim)

    tasks = [asyncio.create_task(wait(mine)) for mine in waiters]
    await until(lambda: watches_of(backend) == 1000, "a thousand watches")
    events, commands = backend.events, backend.commands
    for handoffs in range(1, 6):
        await backend.release(held)
        held = await granted.get()
        assert granted.empty()
        assert backend.events - events == handoffs
    assert backend.commands - commands == 5 * 3  # delete, sync, listing
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_thousand_waiters_that_arrive_together_read_the_queue_once(
    backend: ZooKeeperBackend, key: str
) -> None:
    await backend.acquire(claim(key))
    before = backend.commands
    tasks = [asyncio.create_task(backend.acquire(claim(key))) for _ in range(1000)]
    await until(lambda: watches_of(backend) == 1000, "a thousand watches")
    assert backend.commands - before <= 2 * 1000 + 10  # a create and a watch each, a few listings
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# Leaving


async def test_release_is_idempotent_and_false_for_whoever_does_not_own(
    backend: ZooKeeperBackend, kazoo: KazooClient, key: str
) -> None:
    mine, other = claim(key), claim(key)
    await backend.acquire(mine)
    assert not await backend.release(other)
    assert await backend.release(mine)
    assert not await backend.release(mine)
    successor = claim(key)
    await backend.acquire(successor)
    assert not await backend.release(mine)
    assert len(queue_of(kazoo, key)) == 1


async def test_another_client_can_give_a_claim_back_by_its_owner_alone(
    zookeeper_url: str, backend: ZooKeeperBackend, kazoo: KazooClient, key: str
) -> None:
    mine = claim(key)
    await backend.acquire(mine)
    async with opened(zookeeper_url) as other:
        assert await other.release(mine)
    assert queue_of(kazoo, key) == []


@pytest.mark.parametrize("steps", range(12))
async def test_an_acquire_cancelled_at_any_step_leaves_no_node_and_no_watch(
    zookeeper_url: str, kazoo: KazooClient, key: str, steps: int
) -> None:
    """The loop turns `steps` times, then the call is cancelled: before, during and after each request."""
    async with opened(zookeeper_url) as backend:
        held = claim(key)
        await backend.acquire(held)
        mine = claim(key)
        task = asyncio.create_task(backend.acquire(mine))
        for _ in range(steps):
            await asyncio.sleep(0 if steps < 8 else 0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await backend.release(mine)
        assert len(queue_of(kazoo, key)) == 1
        assert key not in watched_paths(kazoo)
        assert watches_of(backend) == 0
        assert mine.owner not in backend._places
        await backend.release(held)


async def test_a_place_given_up_lets_the_one_behind_move_up(
    backend: ZooKeeperBackend, kazoo: KazooClient, key: str
) -> None:
    """The waiter behind a cancelled one must not take the lock from the holder, nor miss its turn."""
    held, middle, last = claim(key), claim(key), claim(key)
    await backend.acquire(held)
    second = asyncio.create_task(backend.acquire(middle))
    await until(lambda: len(queue_of(kazoo, key)) == 2, "the second queues")
    third = asyncio.create_task(backend.acquire(last))
    await until(lambda: len(queue_of(kazoo, key)) == 3, "the third queues")
    second.cancel()
    await asyncio.wait([second])
    await backend.release(middle)
    await until(lambda: "__lock__0000000000" in watched_paths(kazoo), "the third watches the holder")
    assert not third.done()
    await backend.release(held)
    await third


async def test_closing_leaves_no_node_and_ends_those_who_wait(
    zookeeper_url: str, kazoo: KazooClient, key: str
) -> None:
    backend = open_backend(zookeeper_url, {})
    await backend.acquire(claim(key))
    waiting = asyncio.create_task(backend.acquire(claim(key)))
    await until(lambda: len(queue_of(kazoo, key)) == 2, "the waiter queues")
    await backend.aclose()
    assert queue_of(kazoo, key) == []
    with pytest.raises(BackendUnavailable, match="closed"):
        await waiting


# Holding


async def test_a_lease_that_is_not_renewed_is_given_up_although_the_session_lives(
    zookeeper_url: str, key: str
) -> None:
    async with opened(zookeeper_url) as backend:
        kept, left = await backend.acquire(claim(f"{key}-kept", 1.0)), await backend.acquire(claim(key, 1.0))
        next_one = asyncio.create_task(backend.acquire(claim(key, 1.0)))
        while not next_one.done():
            assert (await backend.renew([kept]))[0] is LeaseState.RENEWED
            await asyncio.sleep(0.05)
        assert next_one.result().fence > left.fence
        assert list(await backend.renew([left])) == [LeaseState.LOST]
        assert not await backend.release(left.claim)


async def test_renewing_many_locks_costs_one_request_once_they_are_guarded(
    backend: ZooKeeperBackend, key: str
) -> None:
    grants = await asyncio.gather(*(backend.acquire(claim(f"{key}-{number}")) for number in range(100)))
    assert set(await backend.renew(grants)) == {LeaseState.RENEWED}
    before = backend.commands
    assert set(await backend.renew(grants)) == {LeaseState.RENEWED}
    assert backend.commands - before == 1


@pytest.mark.parametrize("renewed_before", [False, True])
async def test_a_node_that_somebody_deleted_is_a_lost_lease(
    backend: ZooKeeperBackend, kazoo: KazooClient, key: str, renewed_before: bool
) -> None:
    grant = await backend.acquire(claim(key))
    if renewed_before:
        assert list(await backend.renew([grant])) == [LeaseState.RENEWED]
    [node] = queue_of(kazoo, key)
    kazoo.delete(f"/locks/{key}/{node}")
    assert list(await backend.renew([grant])) == [LeaseState.LOST]
    assert not await backend.release(grant.claim)


async def test_a_waiter_whose_node_was_deleted_queues_up_again(
    backend: ZooKeeperBackend, kazoo: KazooClient, key: str
) -> None:
    held = claim(key)
    await backend.acquire(held)
    waiting = asyncio.create_task(backend.acquire(claim(key)))
    await until(lambda: len(queue_of(kazoo, key)) == 2, "the waiter queues")
    kazoo.delete(f"/locks/{key}/{max(queue_of(kazoo, key), key=lambda name: name[-10:])}")
    await backend.release(held)
    assert (await waiting).fence > 0
    assert len(queue_of(kazoo, key)) == 1


async def test_a_ttl_that_the_servers_do_not_allow_is_refused(backend: ZooKeeperBackend, key: str) -> None:
    with pytest.raises(ValueError, match="raise their maxSessionTimeout"):
        await backend.acquire(claim(key, ttl=120.0))


async def test_fences_cannot_be_raised_and_the_error_says_what_to_do(backend: ZooKeeperBackend) -> None:
    assert not backend.capabilities.fence_floor
    with pytest.raises(LockError, match="cannot be raised"):
        await backend.raise_fence("k", 10)


async def test_an_unreachable_server_is_one_readable_sentence(key: str) -> None:
    async with opened("zookeeper://127.0.0.1:1", connect_timeout=0.3) as backend:
        with pytest.raises(BackendUnavailable, match=r"cannot reach ZooKeeper at 127\.0\.0\.1:1") as caught:
            await backend.acquire(claim(key))
        assert caught.value.definite
        assert not backend._places


# Through the client


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[LockClient]:
    async with connect(url, **options) as locks:
        yield locks


async def test_a_timed_out_wait_leaves_nothing_behind(
    zookeeper_url: str, kazoo: KazooClient, key: str
) -> None:
    async with client(zookeeper_url, local_queue=False) as locks, locks.hold(key):
        with pytest.raises(AcquireTimeout):
            await locks.acquire(key, timeout=0.2)
        await until(lambda: len(queue_of(kazoo, key)) == 1, "only the holder's node remains")
        assert key not in watched_paths(kazoo)


async def test_tasks_of_one_process_share_one_place(zookeeper_url: str, kazoo: KazooClient, key: str) -> None:
    async with client(zookeeper_url) as locks:
        async with locks.hold(key):
            others = [asyncio.create_task(locks.acquire(key)) for _ in range(20)]
            await asyncio.sleep(0.1)
            assert len(queue_of(kazoo, key)) == 1
        for handle in asyncio.as_completed(others):
            await (await handle).release()


async def test_local_handoff_scales_the_fence_and_keeps_it_growing(zookeeper_url: str, key: str) -> None:
    fences = []
    async with (
        client(zookeeper_url, local_handoffs=16) as one,
        client(zookeeper_url, local_handoffs=16) as two,
    ):

        async def contend(locks: LockClient) -> None:
            async with locks.hold(key) as handle:
                fences.append(handle.fence)

        await asyncio.gather(*(contend(one if number % 2 else two) for number in range(200)))
    assert fences == sorted(set(fences))
    assert len({fence // FENCE_SCALE for fence in fences}) < 100
    assert max(fence % FENCE_SCALE for fence in fences) == 16


def test_the_backend_is_chosen_by_its_scheme(zookeeper_url: str) -> None:
    assert isinstance(asyncdlock.connect(zookeeper_url).capabilities.fifo, bool)
