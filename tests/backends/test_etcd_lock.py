"""What an etcd lock is on the server, and that it shares its queue with etcd's own clients."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asyncdlock.backends.etcd import FENCE_SCALE, EtcdBackend, from_url
from asyncdlock.backends.etcd.watch import DeletionWatch
from asyncdlock.errors import LockError
from asyncdlock.types import LeaseState, SharedClaim
from harness.servers import EtcdCluster
from tests.backends.etcd_probe import Probe
from tests.backends.support import claim, until


@pytest.fixture
def probe(shared_etcd: EtcdCluster) -> Probe:
    return Probe(shared_etcd[0])


@pytest.fixture
async def backend(etcd_url: str) -> AsyncIterator[EtcdBackend]:
    backend = from_url(etcd_url)
    yield backend
    await backend.aclose()


async def test_a_held_lock_is_one_key_named_by_its_lease_with_the_owner_in_it(
    backend: EtcdBackend, probe: Probe
) -> None:
    mine = claim("wire:plain")
    grant = await backend.acquire(mine)
    [entry] = await probe.queue("wire:plain")
    assert entry.key == f"/locks/wire:plain/{entry.lease:x}"
    assert entry.value == mine.owner
    assert entry.lease in await probe.leases()
    assert grant.fence == entry.mod_revision == entry.create_revision
    assert grant.reserved == 0

    assert await backend.release(mine) is True
    assert await probe.queue("wire:plain") == []
    assert await backend.release(mine) is False


async def test_a_release_leaves_a_key_alone_that_another_wrote(backend: EtcdBackend, probe: Probe) -> None:
    mine = claim("wire:theirs")
    await backend.acquire(mine)
    [entry] = await probe.queue("wire:theirs")
    await probe.put(entry.key, "somebody else", entry.lease)
    assert await backend.release(mine) is False
    [left] = await probe.queue("wire:theirs")
    assert left.value == "somebody else"
    await probe.delete(entry.key)


async def test_validity_counts_from_before_the_lease_was_last_refreshed(backend: EtcdBackend) -> None:
    before = time.monotonic()
    first = await backend.acquire(claim("wire:validity-1", ttl=5))
    assert first.expires_at < time.monotonic() + 5
    assert first.expires_at > before + 4.8
    await asyncio.sleep(0.6)
    before = time.monotonic()
    second = await backend.acquire(claim("wire:validity-2", ttl=5))
    assert second.expires_at > before + 4.6, "a lease that exists already is refreshed along with it"


async def test_free_costs_one_round_trip_to_take_and_one_to_give_back(backend: EtcdBackend) -> None:
    warm = claim("wire:trips")
    await backend.acquire(warm)
    await backend.release(warm)
    before = backend.stats
    for _ in range(10):
        mine = claim("wire:trips", ttl=5)
        await backend.acquire(mine)
        await backend.release(mine)
    after = backend.stats
    assert after.transactions - before.transactions == 20
    # A keep-alive of the shared lease may go along now and then.
    assert after.commands - before.commands <= 20 + 10


async def test_locks_of_many_tasks_travel_together(backend: EtcdBackend, probe: Probe) -> None:
    claims = [claim(f"wire:together:{number}") for number in range(100)]
    await backend.acquire(claim("wire:together:warm"))
    before = backend.commands
    grants = await asyncio.gather(*(backend.acquire(each) for each in claims))
    assert backend.commands - before <= 10
    for each, grant in zip(claims, grants, strict=True):
        [entry] = await probe.queue(each.key)
        assert (entry.value, entry.mod_revision) == (each.owner, grant.fence)
    assert len({entry.lease for each in claims for entry in await probe.queue(each.key)}) == 1
    assert all(await asyncio.gather(*(backend.release(each) for each in claims)))


async def test_claims_on_one_lock_never_share_a_revision(backend: EtcdBackend, probe: Probe) -> None:
    """Who joins in the same instant still has an order, or two would hold the lock."""
    claims = [claim("wire:tie") for _ in range(8)]
    waiting = {asyncio.create_task(backend.acquire(each)): each for each in claims}
    await probe.waits("wire:tie", 8)
    assert len({entry.create_revision for entry in await probe.queue("wire:tie")}) == 8
    while waiting:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        [holder] = done
        assert holder.result().fence == (await probe.queue("wire:tie"))[0].create_revision
        await backend.release(waiting.pop(holder))


async def test_a_release_and_the_next_claim_on_the_same_lock_travel_together(
    backend: EtcdBackend, probe: Probe
) -> None:
    """Passing a lock on within a process costs one round trip, and the queue of the others is respected."""
    first, second, third = (claim("wire:relay") for _ in range(3))
    grant = await backend.acquire(first)
    waiting = asyncio.create_task(backend.acquire(second))  # brings the second lease to life
    await probe.waits("wire:relay", 2)
    assert await backend.release(first) is True
    await waiting
    before = backend.stats
    released, next_grant = await asyncio.gather(backend.release(second), backend.acquire(third))
    assert released is True
    assert next_grant.fence > (await waiting).fence > grant.fence
    assert [entry.value for entry in await probe.queue("wire:relay")] == [third.owner]
    assert backend.stats.transactions - before.transactions == 2
    assert backend.stats.commands - before.commands <= 2, "one request, perhaps a keep-alive"


async def test_a_claim_that_travels_before_the_release_sees_it_all_the_same(
    backend: EtcdBackend, probe: Probe
) -> None:
    """They have one revision, and a watch from the next one on would wait for ever."""
    first, second, third = (claim("wire:crossing") for _ in range(3))
    await backend.acquire(first)
    waiting = asyncio.create_task(backend.acquire(second))  # brings the second lease to life
    await probe.waits("wire:crossing", 2)
    await backend.release(first)
    await waiting
    before = backend.commands
    async with asyncio.timeout(30):
        grant, released = await asyncio.gather(backend.acquire(third), backend.release(second))
    assert released is True
    assert grant.fence > (await waiting).fence
    assert backend.commands - before <= 2, "one request, perhaps a keep-alive"


async def test_a_release_tells_the_next_of_the_same_client_by_its_own_answer(
    backend: EtcdBackend, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stands right behind the holder need not wait for the event, nor ask for its place."""
    first, second = claim("wire:told"), claim("wire:told")
    grant = await backend.acquire(first)
    waiting = asyncio.create_task(backend.acquire(second))
    await probe.waits("wire:told", 2)
    await until(lambda: backend.stats.watches == 1, "waiting")
    monkeypatch.setattr(backend._watcher, "received", lambda _: None)
    before = backend.stats
    assert await backend.release(first) is True
    async with asyncio.timeout(30):
        assert (await waiting).fence > grant.fence
    assert backend.stats.transactions - before.transactions == 2, "a release, and a reading beside it"
    assert backend.stats.commands - before.commands <= 3, "one request; the watch is closed; a keep-alive"


async def test_whom_a_release_tells_has_its_place_still(backend: EtcdBackend, probe: Probe) -> None:
    """A waiter whose key was deleted by hand takes a new place, although the lock became free for it."""
    first, second = claim("wire:evicted"), claim("wire:evicted")
    await backend.acquire(first)
    waiting = asyncio.create_task(backend.acquire(second))
    await probe.waits("wire:evicted", 2)
    await until(lambda: backend.stats.watches == 1, "waiting")
    [_, evicted] = await probe.queue("wire:evicted")
    await probe.delete(evicted.key)
    await backend.release(first)
    async with asyncio.timeout(30):
        assert (await waiting).fence > evicted.create_revision
    assert [entry.value for entry in await probe.queue("wire:evicted")] == [second.owner]


async def test_a_watch_that_comes_late_says_so(backend: EtcdBackend, probe: Probe) -> None:
    """The server tells what happened before in rounds of its own: who is late asks instead."""
    await backend.acquire(claim("wire:late"))
    [entry] = await probe.queue("wire:late")
    for _ in range(2):
        await probe.put("/elsewhere", "the store moves on", 0)
    late: list[DeletionWatch] = []
    watches = [
        backend._watcher.open(entry.key.encode(), after=entry.mod_revision + moved, on_late=late.append)
        for moved in range(3)
    ]
    await until(lambda: len(late) == 2, "two of three are late")
    assert late == watches[:2]
    assert not any(watch.gone.done() for watch in watches)
    await probe.delete(entry.key)
    async with asyncio.timeout(30):
        await asyncio.gather(*(watch.gone for watch in watches))
    assert len(late) == 2


@pytest.mark.parametrize("taken_again", [False, True])
async def test_a_key_that_went_before_it_was_watched_is_not_waited_for(
    backend: EtcdBackend, probe: Probe, taken_again: bool
) -> None:
    """Also when the same lease has queued anew under the same name meanwhile."""
    mine = claim("wire:missed")
    grant = await backend.acquire(mine)
    [entry] = await probe.queue("wire:missed")
    watch = DeletionWatch(1, entry.key.encode(), entry.mod_revision, lambda _: None)
    backend._queue._check(watch)
    assert await backend.renew([grant]) == [LeaseState.RENEWED]
    assert not watch.gone.done(), "it is there"
    assert await backend.release(mine) is True
    if taken_again:
        await backend.acquire(claim("wire:missed"))
        assert [again.key for again in await probe.queue("wire:missed")] == [entry.key]
    backend._queue._check(watch)
    async with asyncio.timeout(30):
        await watch.gone


async def test_try_acquire_takes_a_free_lock_and_leaves_no_trace_at_a_held_one(
    backend: EtcdBackend, etcd_url: str, probe: Probe
) -> None:
    other = from_url(etcd_url)
    mine, theirs = claim("wire:try"), claim("wire:try")
    grant = await backend.try_acquire(mine)
    assert grant is not None
    assert grant.fence == (await probe.queue("wire:try"))[0].mod_revision
    assert await other.try_acquire(theirs) is None
    assert [entry.value for entry in await probe.queue("wire:try")] == [mine.owner]
    await backend.release(mine)
    assert await other.try_acquire(theirs) is not None
    await other.aclose()
    assert await probe.queue("wire:try") == []


async def test_a_lock_whose_name_begins_like_another_is_another_lock(
    backend: EtcdBackend, probe: Probe
) -> None:
    """`a` and `a/b` share a prefix on the server; neither may wait for the other."""
    inner = [claim(f"wire:nest/{letter}") for letter in "abc"]
    for each in inner:
        await backend.acquire(each)
    outer, late = claim("wire:nest"), claim("wire:nest")
    async with asyncio.timeout(10):
        held = await backend.acquire(outer)
    assert await backend.try_acquire(late) is None
    waiting = asyncio.create_task(backend.acquire(late))
    await probe.waits("wire:nest", 5)
    await backend.release(inner[0])
    more = claim("wire:nest/d")
    await backend.acquire(more)
    assert not waiting.done()
    await backend.release(outer)
    assert (await waiting).fence > held.fence
    await backend.release(late)
    attempt = claim("wire:nest")
    assert await backend.try_acquire(attempt) is not None


async def test_renewal_extends_all_locks_of_a_lease_by_one_keep_alive(backend: EtcdBackend) -> None:
    grants = [await backend.acquire(claim(f"wire:renew:{number}", ttl=2)) for number in range(150)]
    before = backend.commands
    assert await backend.renew(grants) == [LeaseState.RENEWED] * 150
    assert backend.commands - before <= 1 + 3 + 1, "one keep-alive, three reads of up to 64 keys"


async def test_renewal_notices_a_key_that_somebody_deleted(backend: EtcdBackend, probe: Probe) -> None:
    kept = await backend.acquire(claim("wire:kept"))
    taken = await backend.acquire(claim("wire:taken"))
    [entry] = await probe.queue("wire:taken")
    await probe.delete(entry.key)
    assert await backend.renew([taken, kept]) == [LeaseState.LOST, LeaseState.RENEWED]


async def test_a_lock_that_nobody_renews_ends_although_its_lease_lives_on(
    backend: EtcdBackend, etcd_url: str, probe: Probe
) -> None:
    lapsing = await backend.acquire(claim("wire:lapsing", ttl=1))
    renewed = await backend.acquire(claim("wire:renewed", ttl=1))
    other = from_url(etcd_url)
    waiting = asyncio.create_task(other.acquire(claim("wire:lapsing", ttl=1)))

    async def taken_over() -> bool:
        assert await backend.renew([renewed]) == [LeaseState.RENEWED]
        return waiting.done()

    await until(taken_over, "the lapsed lock has a new holder")
    assert (await waiting).fence > lapsing.fence
    assert time.monotonic() >= lapsing.expires_at
    assert len(await probe.queue("wire:renewed")) == 1
    assert await backend.renew([lapsing]) == [LeaseState.LOST]
    await other.aclose()


async def test_with_local_hand_off_fences_are_scaled_and_reserved(etcd_url: str, probe: Probe) -> None:
    backend = from_url(etcd_url, local_handoffs=8)
    grant = await backend.acquire(claim("wire:scaled"), reserve=8)
    [entry] = await probe.queue("wire:scaled")
    assert (grant.fence, grant.reserved) == (entry.mod_revision * FENCE_SCALE, 8)
    greedy = await backend.acquire(claim("wire:scaled-2"), reserve=10 * FENCE_SCALE)
    assert greedy.reserved == FENCE_SCALE - 1
    await backend.aclose()


async def test_fences_cannot_be_raised_and_it_says_so(backend: EtcdBackend) -> None:
    assert backend.capabilities.fence_floor is False
    with pytest.raises(LockError, match="cannot be raised"):
        await backend.raise_fence("k", 100)


async def test_closing_leaves_nothing_on_the_server(etcd_url: str, probe: Probe) -> None:
    leases = await probe.leases()
    backend = from_url(etcd_url)
    for ttl in (1, 2, 3):
        await backend.acquire(claim(f"wire:closing:{ttl}", ttl=ttl))
    waiting = asyncio.create_task(backend.acquire(claim("wire:closing:1")))
    await probe.waits("wire:closing:1", 2)
    waiting.cancel()
    await asyncio.wait({waiting})
    await backend.aclose()
    assert await probe.leases() <= leases
    for ttl in (1, 2, 3):
        assert await probe.queue(f"wire:closing:{ttl}") == []
    with pytest.raises(LockError, match="closed"):
        await backend.acquire(claim("wire:closing:1"))


async def test_etcdctl_and_this_library_stand_in_one_queue(
    backend: EtcdBackend, shared_etcd: EtcdCluster, probe: Probe, tmp_path: Path
) -> None:
    """Fifty of each, mixed: served in the order of arrival, and never two at a time."""
    arrivals = 100
    journal, inside = tmp_path / "journal", tmp_path / "inside"
    etcdctl = shared_etcd[0].binary.with_name("etcdctl")
    # mkdir fails when somebody else is inside.
    script = f"mkdir {inside} && echo $0 >> {journal} && sleep 0.01 && rmdir {inside}"
    first = claim("wire:etcdctl", ttl=60)
    await backend.acquire(first)

    async def ours(turn: int) -> int:
        mine = claim("wire:etcdctl", ttl=60)
        await backend.acquire(mine)
        await asyncio.to_thread(inside.mkdir)
        with journal.open("a") as file:
            file.write(f"{turn}\n")
        await asyncio.to_thread(inside.rmdir)
        return 0 if await backend.release(mine) else 1

    async def theirs(turn: int) -> int:
        child = await asyncio.create_subprocess_exec(
            etcdctl,
            f"--endpoints={shared_etcd[0].address}",
            "lock",
            "/locks/wire:etcdctl",
            "--",
            "sh",
            "-c",
            script,
            str(turn),
            env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
        )
        return await child.wait()

    turns: list[asyncio.Task[int]] = []
    for turn in range(arrivals):
        turns.append(asyncio.create_task(ours(turn) if turn % 2 else theirs(turn)))
        await probe.waits("wire:etcdctl", turn + 2)
    assert not journal.exists()
    await backend.release(first)
    assert await asyncio.gather(*turns) == [0] * arrivals
    assert journal.read_text().split() == [str(turn) for turn in range(arrivals)]


async def test_etcdctl_waits_for_our_readers_and_they_for_it(
    backend: EtcdBackend, shared_etcd: EtcdCluster, probe: Probe
) -> None:
    """It takes a reader for one more exclusive place: it waits for all of them, and none passes it."""
    key = "wire:readers"
    readers = [SharedClaim(key, claim(key).owner, 60.0) for _ in range(3)]
    for reader in readers[:2]:
        await backend.acquire(reader)
    etcdctl = await asyncio.create_subprocess_exec(
        shared_etcd[0].binary.with_name("etcdctl"),
        f"--endpoints={shared_etcd[0].address}",
        "lock",
        f"/locks/{key}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
    )
    assert etcdctl.stdout is not None
    try:
        await probe.waits(key, 3)
        behind = asyncio.create_task(backend.acquire(readers[2]))
        await probe.waits(key, 4)
        assert await backend.try_acquire(SharedClaim(key, claim(key).owner, 60.0)) is None
        for reader in readers[:2]:
            assert not behind.done()
            assert await backend.release(reader)
        async with asyncio.timeout(60.0):
            assert (await etcdctl.stdout.readline()).startswith(f"/locks/{key}/".encode())
        assert not behind.done()
        etcdctl.send_signal(signal.SIGINT)
        async with asyncio.timeout(60.0):
            await behind
        assert await backend.release(readers[2])
    finally:
        if etcdctl.returncode is None:
            etcdctl.kill()
        await etcdctl.wait()


async def test_two_hundred_contenders_are_served_in_queue_order(backend: EtcdBackend, probe: Probe) -> None:
    served: list[int] = []
    first = claim("wire:fifo")
    await backend.acquire(first)

    async def contend() -> None:
        mine = claim("wire:fifo")
        grant = await backend.acquire(mine)
        served.append(grant.fence)
        await backend.release(mine)

    contenders = [asyncio.create_task(contend()) for _ in range(200)]
    await probe.waits("wire:fifo", 201)
    queued = [entry.create_revision for entry in await probe.queue("wire:fifo")][1:]
    await backend.release(first)
    await asyncio.gather(*contenders)
    assert served == queued


async def test_a_release_wakes_one_of_a_thousand_waiters(backend: EtcdBackend, probe: Probe) -> None:
    first = claim("wire:herd", ttl=60)
    await backend.acquire(first)
    watchers = await probe.watchers()
    claims = [claim("wire:herd", ttl=60) for _ in range(1000)]
    waiting = {asyncio.create_task(backend.acquire(each)): each for each in claims}

    async def watched(by: int) -> bool:
        return await probe.watchers() == watchers + by

    await until(lambda: watched(1000), "a thousand watches on the server", within=60)
    assert backend.stats.watch_events == 0

    held = first
    for _ in range(3):
        before = backend.stats
        await backend.release(held)
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        [winner] = done
        held = waiting.pop(winner)
        assert backend.stats.watch_events - before.watch_events <= 1  # or the release itself has told
        assert backend.stats.transactions - before.transactions == 2, "one release, one look"
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await asyncio.gather(*(backend.release(each) for each in waiting.values()))
    await probe.waits("wire:herd", 1)
    await until(lambda: watched(0), "no watch is left on the server")
