"""Replies that get lost, claims that are cancelled, leases that expire: nothing stale, nothing left."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from itertools import count

import aiohttp
import pytest

from asyncdlock.backends.etcd import EtcdBackend, from_url, maintenance
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import LeaseState
from harness import servers
from harness.servers import EtcdCluster
from tests.backends.etcd_probe import Probe, Proxy
from tests.backends.support import cancelled_at, claim, until


@pytest.fixture
def probe(shared_etcd: EtcdCluster) -> Probe:
    return Probe(shared_etcd[0])


@pytest.fixture
async def backend(etcd_url: str) -> AsyncIterator[EtcdBackend]:
    backend = from_url(etcd_url)
    yield backend
    await backend.aclose()


@pytest.fixture
async def proxy(shared_etcd: EtcdCluster) -> AsyncIterator[Proxy]:
    async with Proxy(shared_etcd[0]).running() as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy: Proxy) -> AsyncIterator[EtcdBackend]:
    """A backend that reaches etcd through the proxy alone, with its lease granted already."""
    backend = from_url(f"etcd://127.0.0.1:{proxy.port}")
    warm = claim("loss:warm")
    await backend.acquire(warm)
    await backend.release(warm)
    yield backend
    await backend.aclose()


async def test_a_claim_that_was_not_sent_yet_is_simply_withdrawn(
    behind: EtcdBackend, proxy: Proxy, probe: Probe
) -> None:
    """Claims on one lock go one after the other; a cancelled one must not wait for those in front."""
    for hold_answers in (False, True):  # the first time brings forty leases
        if hold_answers:
            proxy.hold_answers()
        claims = [claim("loss:unsent") for _ in range(40)]
        attempts = [asyncio.create_task(behind.acquire(each)) for each in claims]
        await asyncio.sleep(0.3)
        for attempt in attempts:
            attempt.cancel()
        await asyncio.wait(attempts)
        if not hold_answers:
            await asyncio.gather(*(behind.release(each) for each in claims))
    releases = [asyncio.create_task(behind.release(each)) for each in claims]
    await until(lambda: sum(release.done() for release in releases) == 32, "all but the 8 that were sent")
    proxy.cut()
    await asyncio.gather(*releases)
    assert await probe.queue("loss:unsent") == []


@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
async def test_a_claim_whose_reply_was_lost_finds_itself_again(
    verb: str, behind: EtcdBackend, proxy: Proxy, probe: Probe
) -> None:
    mine = claim(f"loss:{verb}")
    proxy.hold_answers()
    attempt = asyncio.create_task(getattr(behind, verb)(mine))
    await probe.waits(mine.key, 1)
    assert not attempt.done()
    proxy.cut()
    grant = await attempt
    [entry] = await probe.queue(mine.key)
    assert (entry.value, entry.mod_revision) == (mine.owner, grant.fence)
    assert await behind.release(mine) is True
    assert await probe.queue(mine.key) == []


async def test_a_release_whose_reply_was_lost_says_that_it_happened(
    behind: EtcdBackend, proxy: Proxy, probe: Probe
) -> None:
    mine = claim("loss:release")
    await behind.acquire(mine)
    proxy.hold_answers()
    release = asyncio.create_task(behind.release(mine))
    await probe.waits(mine.key, 0)
    proxy.cut()
    assert await release is True


async def test_a_lease_that_lapsed_was_not_released_by_its_holder(backend: EtcdBackend) -> None:
    """The client deletes a lapsed key itself. A release at that moment must not take it for its own deed."""
    mine = claim("loss:lapsed", 1.0)
    await backend.acquire(mine)
    [place] = backend.places()
    async with asyncio.timeout(30.0):
        while place.leaving is None:  # no longer sleep: the answer must not have come
            await asyncio.sleep(0)
    assert await backend.release(mine) is False


async def test_a_cancelled_claim_is_undone_also_when_its_reply_never_came(
    behind: EtcdBackend, proxy: Proxy, probe: Probe
) -> None:
    mine = claim("loss:cancelled")
    proxy.hold_answers()
    attempt = asyncio.create_task(behind.acquire(mine))
    await probe.waits(mine.key, 1)
    attempt.cancel()
    sent = behind.stats.transactions
    release = asyncio.create_task(behind.release(mine))
    await asyncio.wait({attempt, release}, timeout=0.1)
    assert attempt.cancelled() and not release.done()
    assert behind.stats.transactions == sent, "a release must not overtake the claim that it undoes"
    proxy.cut()
    await release
    assert await probe.queue(mine.key) == []


async def test_a_claim_that_arrives_after_it_was_given_up_is_removed(
    behind: EtcdBackend, proxy: Proxy, probe: Probe
) -> None:
    """The delayed copy of a repeated request puts a key for nobody, under a lease that is in use."""
    kept, lost = claim("loss:kept", ttl=1), claim("loss:late", ttl=1)
    grant = await behind.acquire(kept)
    [beside] = await probe.queue(kept.key)
    proxy.hold_answers()
    attempt = asyncio.create_task(behind.acquire(lost))
    await probe.waits(lost.key, 1)
    proxy.cut()
    await attempt
    await behind.release(lost)
    assert await probe.queue(lost.key) == []

    await probe.put(f"/locks/{lost.key}/{beside.lease:x}", lost.owner, beside.lease)

    async def removed() -> bool:
        assert await behind.renew([grant]) == [LeaseState.RENEWED]
        return not await probe.queue(lost.key)

    await until(removed, "the late key is gone")
    assert [entry.value for entry in await probe.queue(kept.key)] == [kept.owner]
    later = claim(lost.key, ttl=1)
    await behind.acquire(later)
    assert (await probe.queue(lost.key))[0].lease != beside.lease, "a doubtful lease is not lent again"


async def test_a_release_that_failed_is_made_good_without_being_asked_again(
    shared_etcd: EtcdCluster, proxy: Proxy, probe: Probe
) -> None:
    backend = from_url(f"etcd://127.0.0.1:{proxy.port}", timeout=0.3, attempt_timeout=0.2)
    forgotten, kept = claim("loss:forgotten", ttl=2), claim("loss:kept-2", ttl=2)
    await backend.acquire(forgotten)
    grant = await backend.acquire(kept)
    proxy.hold_answers()
    # The request that will be lost finds nothing to do; the key comes back once it has failed.
    await probe.delete((await probe.queue(forgotten.key))[0].key)
    with pytest.raises(BackendUnavailable) as failed:
        await backend.release(forgotten)
    assert failed.value.definite is False
    [beside] = await probe.queue(kept.key)
    await probe.put(f"/locks/{forgotten.key}/{beside.lease:x}", forgotten.owner, beside.lease)
    proxy.cut()

    async def removed() -> bool:
        await backend.renew([grant])
        return not await probe.queue(forgotten.key)

    await until(removed, "the key is gone although nobody asked again")
    assert await backend.renew([grant]) == [LeaseState.RENEWED]
    await backend.aclose()


async def test_cancelled_at_any_await_an_uncontended_claim_leaves_nothing(
    etcd_url: str, probe: Probe
) -> None:
    for verb in ("acquire", "try_acquire"):
        for step in count(1):
            backend = from_url(etcd_url)
            mine = claim("loss:free")
            was_cancelled = await cancelled_at(step, getattr(backend, verb)(mine))
            await backend.release(mine)
            assert await probe.queue("loss:free") == []
            await backend.aclose()
            if not was_cancelled:
                break
        assert step > 2, "the lease and the key are two awaits"


async def test_cancelled_at_any_await_a_claim_that_was_sent_at_once_leaves_nothing(
    backend: EtcdBackend, probe: Probe
) -> None:
    """A task that has long been alone does not wait for the end of the tick: its request is out at once."""
    for step in count(1):
        for _ in range(10):
            warm = claim("loss:alone")
            await backend.acquire(warm)
            await backend.release(warm)
        mine = claim("loss:alone")
        was_cancelled = await cancelled_at(step, backend.acquire(mine))
        await backend.release(mine)
        assert await probe.queue("loss:alone") == []
        if not was_cancelled:
            break
    assert step > 1, "the key is an await"


async def test_cancelled_at_any_await_a_waiter_leaves_nothing(
    backend: EtcdBackend, etcd_url: str, probe: Probe
) -> None:
    other = from_url(etcd_url)
    for step in count(1):
        theirs, mine = claim("loss:contended"), claim("loss:contended")
        await other.acquire(theirs)
        attempt = asyncio.create_task(cancelled_at(step, backend.acquire(mine)))
        await until(lambda: attempt.done() or backend.stats.watches, "waiting or cancelled")  # noqa: B023
        await other.release(theirs)
        was_cancelled = await attempt
        await backend.release(mine)
        assert await probe.queue("loss:contended") == []
        assert backend.stats.watches == 0
        if not was_cancelled:
            break
    assert step > 3, "the key, the watch and the look are three awaits"
    assert backend.stats.leases == 1, "the client's own, kept for the next claim"
    await other.aclose()


async def test_a_release_that_is_cancelled_goes_on(backend: EtcdBackend, probe: Probe) -> None:
    mine = claim("loss:half-released")
    await backend.acquire(mine)
    assert await cancelled_at(1, backend.release(mine))
    await until(lambda: not backend.places(), "given up")
    assert await probe.queue(mine.key) == []


async def test_a_release_that_is_cancelled_while_the_claim_is_on_its_way_goes_on(
    backend: EtcdBackend, probe: Probe
) -> None:
    warm, mine = claim("loss:on-its-way"), claim("loss:on-its-way")
    await backend.acquire(warm)
    await backend.release(warm)
    attempt = asyncio.create_task(backend.acquire(mine))
    await asyncio.sleep(0)
    attempt.cancel()
    assert await cancelled_at(1, backend.release(mine))
    await until(lambda: not backend.places(), "given up")
    assert await probe.queue(mine.key) == []


async def test_a_holder_whose_lease_expired_learns_it(
    backend: EtcdBackend, etcd_url: str, probe: Probe
) -> None:
    one, two = await backend.acquire(claim("loss:held-1")), await backend.acquire(claim("loss:held-2"))
    [entry] = await probe.queue("loss:held-1")
    await probe.revoke(entry.lease)
    other = from_url(etcd_url)
    theirs = await other.acquire(claim("loss:held-1"))
    assert theirs.fence > one.fence
    assert await backend.renew([one, two]) == [LeaseState.LOST, LeaseState.LOST], "all locks of that lease"
    assert await backend.release(one.claim) is False
    assert [entry.mod_revision for entry in await probe.queue("loss:held-1")] == [theirs.fence]
    again = await backend.acquire(claim("loss:held-2"))
    assert again.fence > two.fence, "the client goes on with another lease"
    await other.aclose()


async def test_a_waiter_whose_lease_expired_does_not_get_the_lock_by_it(
    backend: EtcdBackend, etcd_url: str, probe: Probe
) -> None:
    """Jepsen found waiters of etcd 3.4.3 that woke up to a lock which was somebody else's."""
    holder, rival = from_url(etcd_url), from_url(etcd_url)
    first = claim("loss:stale")
    await holder.acquire(first)
    waiting = asyncio.create_task(backend.acquire(claim("loss:stale")))
    await probe.waits("loss:stale", 2)
    behind = asyncio.create_task(rival.acquire(rivals := claim("loss:stale")))
    await probe.waits("loss:stale", 3)
    await probe.revoke((await probe.queue("loss:stale"))[1].lease)
    await holder.release(first)
    theirs = await behind
    assert not waiting.done(), "the rival holds the lock"
    # The waiter lost its place, not its patience: it queues again.
    await probe.waits("loss:stale", 2)
    await rival.release(rivals)
    assert (await waiting).fence > theirs.fence
    await holder.aclose()
    await rival.aclose()


async def test_a_waiter_notices_that_its_own_lease_is_gone_before_its_turn(
    backend: EtcdBackend, etcd_url: str, probe: Probe
) -> None:
    holder = from_url(etcd_url)
    first = claim("loss:early", ttl=5)
    await holder.acquire(first)
    waiting = asyncio.create_task(backend.acquire(claim("loss:early", ttl=1)))
    await probe.waits("loss:early", 2)
    lease = (await probe.queue("loss:early"))[1].lease
    await probe.revoke(lease)

    async def queued_again() -> bool:
        return [entry.lease != lease for entry in await probe.queue("loss:early")] == [True, True]

    await until(queued_again, "a new place")
    await holder.release(first)
    await waiting
    await holder.aclose()


async def test_a_lease_is_never_revoked_under_a_lock_that_borrows_it_just_then(
    backend: EtcdBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_KEEP_IDLE", 0.0)
    # Further idle leases, so that revoking them takes a moment.
    claims = [claim("loss:idle", ttl=1) for _ in range(30)]
    waiting = [asyncio.create_task(backend.acquire(each)) for each in claims]
    await until(lambda: backend.stats.watches == 29, "thirty leases")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*(backend.release(each) for each in claims))
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        grant = await backend.acquire(claim("loss:borrowed", ttl=1))
        assert await backend.renew([grant]) == [LeaseState.RENEWED]
        await backend.release(grant.claim)
        await asyncio.sleep(0.003)


async def test_waiting_longer_than_the_ttl_keeps_the_place(
    backend: EtcdBackend, etcd_url: str, probe: Probe
) -> None:
    holder = from_url(etcd_url)
    first = await holder.acquire(claim("loss:patient", ttl=1))
    waiting = asyncio.create_task(backend.acquire(claim("loss:patient", ttl=1)))
    await probe.waits("loss:patient", 2)
    place = (await probe.queue("loss:patient"))[1]
    until_later = time.monotonic() + 3
    while time.monotonic() < until_later:
        assert await holder.renew([first]) == [LeaseState.RENEWED]
        await asyncio.sleep(0.2)
    assert (await probe.queue("loss:patient"))[1] == place
    await holder.release(first.claim)
    grant = await waiting
    assert grant.fence == place.mod_revision
    assert grant.expires_at - time.monotonic() > 0.5
    await holder.aclose()


async def test_a_loop_that_slept_does_not_blame_the_server(backend: EtcdBackend) -> None:
    held = await backend.acquire(claim("loss:slept", ttl=2))
    await backend.renew([held])
    sent = backend.commands
    renewal = asyncio.create_task(backend.renew([held]))
    while backend.commands < sent + 2:
        await asyncio.sleep(0)
    time.sleep(1)  # longer than a keep-alive may take
    assert await renewal == [LeaseState.RENEWED]
    assert backend.stats.failovers == 0


async def test_closing_ends_a_wait_with_an_error_and_not_as_if_it_was_cancelled(
    proxy: Proxy, etcd_url: str
) -> None:
    holder, backend = from_url(etcd_url), from_url(f"etcd://me:secret@127.0.0.1:{proxy.port}", timeout=0.5)
    await holder.acquire(claim("loss:closing"))
    waiting = asyncio.create_task(backend.acquire(claim("loss:closing")))
    await until(lambda: backend.stats.watches == 1, "waiting")
    proxy.hold_answers()
    asking = asyncio.create_task(backend.acquire(claim("loss:closing-2", ttl=7)))
    await asyncio.sleep(0.05)
    await backend.aclose()
    for task in (waiting, asking):
        with pytest.raises(BackendError):
            await task
    await holder.aclose()


async def test_a_waiter_behind_a_silent_server_fails_instead_of_waiting_for_ever(
    proxy: Proxy, etcd_url: str
) -> None:
    holder = from_url(etcd_url)
    first = claim("loss:silent")
    await holder.acquire(first)
    backend = from_url(f"etcd://127.0.0.1:{proxy.port}", timeout=0.5, attempt_timeout=0.2)
    waiting = asyncio.create_task(backend.acquire(mine := claim("loss:silent", ttl=1)))
    await until(lambda: backend.stats.watches == 1, "waiting")
    proxy.hold_answers()
    with pytest.raises(BackendUnavailable) as failed:
        await waiting
    assert failed.value.definite is False
    proxy.cut()
    await backend.release(mine)
    await backend.aclose()
    await holder.aclose()


async def test_a_store_that_is_full_costs_no_holder_its_lock() -> None:
    """Leases can still be kept alive. etcd 3.5 then refuses every transaction, also one that only reads."""
    async with servers.etcd(flavour="wheel", options=[f"--quota-backend-bytes={4 << 20}"]) as cluster:
        backend = from_url(cluster.url)
        held = [await backend.acquire(claim(f"full:{number}")) for number in range(3)]
        lost = claim("full:lost")
        held.append(await backend.acquire(lost))
        (entry,) = await Probe(cluster[0]).queue(lost.key)
        await Probe(cluster[0]).delete(entry.key)
        await _fill(cluster[0])
        with pytest.raises(BackendError, match="space exceeded"):
            await backend.acquire(claim("full:more"))
        assert await backend.renew(held) == [LeaseState.RENEWED] * 3 + [LeaseState.LOST]
        await backend.aclose()


async def _fill(node: servers.EtcdNode) -> None:
    value = base64.b64encode(bytes(100_000)).decode()
    with pytest.raises(aiohttp.ClientResponseError):
        for number in range(100):
            await node.call("kv/put", {"key": base64.b64encode(b"fill%d" % number).decode(), "value": value})
