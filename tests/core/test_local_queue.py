"""The local queue: one remote place per key, hand-off with fresh fences, and doubt that stops it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from redis.asyncio import Redis

import asyncdlock
from asyncdlock._local_queue import LocalQueue
from asyncdlock.client import LockClient
from asyncdlock.errors import BackendUnavailable, LockLost
from asyncdlock.handle import Handle
from asyncdlock.types import Claim, Grant, LeaseState, SharedClaim, validity
from tests.contract.fixtures import until
from tests.core.scripted import Scripted, never

HANDOFFS = 4


@pytest.fixture
def server() -> Scripted:
    return Scripted()


@pytest.fixture
async def locks(server: Scripted) -> AsyncIterator[LockClient]:
    # Turns that a loaded machine does not cut short: a tenth of the TTL is left as the bound.
    client = LockClient(LocalQueue(server, handoffs=HANDOFFS, longest_turn=60.0))
    yield client
    server.on_acquire = server.on_release = server.on_renew = None
    await client.aclose()


async def queue_up(
    locks: LockClient, key: str, number: int, **options: float
) -> "list[asyncio.Task[Handle]]":
    tasks = [asyncio.create_task(locks.acquire(key, **options)) for _ in range(number)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return tasks


async def test_waiters_get_the_fences_of_the_block_in_order_and_without_a_request(
    locks: LockClient, server: Scripted
) -> None:
    first = await locks.acquire("key")
    waiting = await queue_up(locks, "key", HANDOFFS)
    handle = first
    for task in waiting:
        assert await handle.release() is True
        handle = await task
    fences = [first.fence, *[task.result().fence for task in waiting]]
    assert fences == list(range(first.fence, first.fence + 1 + HANDOFFS))
    assert server.calls == [("acquire", first.owner)]
    await handle.release()
    assert server.owners("release") == [first.owner], "the server knows the first claim alone"


async def test_after_the_last_fence_of_the_block_the_turn_goes_to_the_server(
    locks: LockClient, server: Scripted
) -> None:
    handle = await locks.acquire("key")
    fences = [handle.fence]
    for task in await queue_up(locks, "key", 3 * HANDOFFS):
        await handle.release()
        handle = await task
        fences.append(handle.fence)
    await handle.release()
    assert fences == sorted(set(fences)), "a fence was used twice or ran back"
    assert len(server.owners("acquire")) == 3
    assert server.owners("release") == server.owners("acquire")


async def test_no_block_no_hand_off(server: Scripted) -> None:
    locks = LockClient(LocalQueue(server, handoffs=0))
    handle = await locks.acquire("key")
    (waiting,) = await queue_up(locks, "key", 1)
    await handle.release()
    await (await waiting).release()
    assert len(server.owners("acquire")) == 2
    await locks.aclose()


@pytest.mark.parametrize("state", [LeaseState.UNKNOWN, LeaseState.LOST])
async def test_a_lease_in_doubt_is_not_handed_on(
    locks: LockClient, server: Scripted, state: LeaseState
) -> None:
    async def doubt(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [state] * len(grants)

    handle = await locks.acquire("key")
    (waiting,) = await queue_up(locks, "key", 1)
    server.on_renew = doubt
    await locks._backend.renew([handle._holding.grant])
    await handle.release()
    assert (await waiting).fence > handle.fence + HANDOFFS, "a fence of the doubtful block"
    assert len(server.owners("acquire")) == 2


async def test_a_lease_that_the_server_calls_lost_is_not_waited_for(
    locks: LockClient, server: Scripted
) -> None:
    """Neither by those who wait already nor by those who come later, and whether it is released or not."""

    async def gone(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [LeaseState.LOST] * len(grants)

    server.on_renew = gone
    for waits_already in (True, False):
        handle = await locks.acquire("key", ttl=60.0)
        waiting = await queue_up(locks, "key", 1) if waits_already else []
        with pytest.raises(LockLost):
            await handle.renew()
        async with asyncio.timeout(30.0):
            other = await (waiting[0] if waiting else locks.acquire("key"))
        assert other.fence > handle.fence + HANDOFFS
        assert await other.release()
    lost = await locks.acquire("key", ttl=60.0)
    with pytest.raises(LockLost):
        await lost.renew()
    tried = await locks.try_acquire("key")
    assert tried is not None
    assert await tried.release()


async def test_a_renewal_that_clears_the_doubt_allows_hand_off_again(
    locks: LockClient, server: Scripted
) -> None:
    states = iter([LeaseState.UNKNOWN, LeaseState.RENEWED])

    async def scripted(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [next(states)] * len(grants)

    handle = await locks.acquire("key")
    (waiting,) = await queue_up(locks, "key", 1)
    server.on_renew = scripted
    for _ in range(2):
        await locks._backend.renew([handle._holding.grant])
    await handle.release()
    assert (await waiting).fence == handle.fence + 1


@pytest.mark.parametrize(("ttl", "turn"), [(1.0, 60.0), (60.0, 0.1)])
async def test_a_turn_ends_after_a_while_or_a_tenth_of_the_ttl(
    server: Scripted, ttl: float, turn: float
) -> None:
    """Also when a renewal has made the lease as good as new: others wait, perhaps."""
    locks = LockClient(LocalQueue(server, handoffs=HANDOFFS, longest_turn=turn))
    handle = await locks.acquire("key", ttl=ttl)
    began = time.monotonic()
    waiting = asyncio.create_task(locks.acquire("key", ttl=ttl))
    await until(lambda: time.monotonic() > began + 0.1)
    await handle.renew()
    await handle.release()
    assert (await waiting).fence > handle.fence + HANDOFFS
    await locks.aclose()


async def test_a_turn_begins_with_the_grant_however_old_its_lease_is() -> None:
    """Locks of one process can share a lease: it is fresh enough to hand on, and older than a turn lasts."""

    class SharedLease(Scripted):
        async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
            grant = await super().acquire(claim, reserve=reserve)
            return grant._replace(expires_at=grant.expires_at - 6.0)

    locks = LockClient(LocalQueue(SharedLease(), handoffs=HANDOFFS, longest_turn=5.0))
    handle = await locks.acquire("key", ttl=100.0)
    (waiting,) = await queue_up(locks, "key", 1, ttl=100.0)
    await handle.release()
    assert (await waiting).fence == handle.fence + 1
    await locks.aclose()


async def test_a_lock_that_was_asked_back_is_never_handed_on(locks: LockClient, server: Scripted) -> None:
    """The next one asks the server, which knows when the lock is free, without waiting for the release."""
    released = asyncio.Event()

    async def slowly(claim: Claim) -> None:
        await released.wait()

    handle = await locks.acquire("key")
    server.on_release = slowly
    releasing = asyncio.create_task(handle.release())
    await asyncio.sleep(0)
    (waiting,) = await queue_up(locks, "key", 1)
    # A renewal that was under way says that the lease is fine: it was, then.
    await locks._backend.renew([handle._holding.grant])
    again = asyncio.create_task(locks._backend.release(handle._holding.grant.claim))
    assert (await waiting).fence > handle.fence + HANDOFFS, "a fence of the block that was given back"
    assert server.calls[1:3] == [("release", handle.owner), ("acquire", waiting.result().owner)]
    released.set()
    await asyncio.gather(releasing, again)


async def test_a_failed_release_is_repeated_for_the_claim_that_the_server_knows(
    locks: LockClient, server: Scripted
) -> None:
    away = True

    async def fail(claim: Claim) -> None:
        if away:
            raise BackendUnavailable("away", definite=False)

    first = await locks.acquire("key")
    (waiting,) = await queue_up(locks, "key", 1)
    await first.release()
    second = await waiting
    (third,) = await queue_up(locks, "key", 1, ttl=20.0)
    server.on_release = fail
    with pytest.raises(BackendUnavailable):
        await second.release()
    assert (await third).fence > second.fence, "whoever comes next is the server's business"
    away = False
    assert await second.release()
    assert server.owners("release") == [first.owner, first.owner]


async def test_what_nobody_asks_again_for_is_forgotten_after_its_ttl(
    locks: LockClient, server: Scripted
) -> None:
    async def fail(claim: Claim) -> None:
        raise BackendUnavailable("away", definite=False)

    queue = locks._backend
    assert isinstance(queue, LocalQueue)
    server.on_release = fail
    for number in range(50):
        handle = await locks.acquire(f"key {number}", ttl=0.01)
        with pytest.raises(BackendUnavailable):
            await handle.release()
        await asyncio.sleep(0.011)
    assert len(queue._unfinished) == 1


async def test_a_waiter_with_another_ttl_goes_to_the_server(locks: LockClient, server: Scripted) -> None:
    handle = await locks.acquire("key", ttl=10.0)
    (waiting,) = await queue_up(locks, "key", 1, ttl=20.0)
    await handle.release()
    other = await waiting
    assert other.ttl == 20.0
    assert len(server.owners("acquire")) == 2


async def test_cancelled_waiters_are_passed_over(locks: LockClient, server: Scripted) -> None:
    handle = await locks.acquire("key")
    waiting = await queue_up(locks, "key", 3)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.sleep(0)
    await handle.release()
    assert (await waiting[2]).fence == handle.fence + 1
    assert len(server.owners("acquire")) == 1


async def test_a_waiter_cancelled_in_the_moment_of_its_hand_off_passes_the_lock_on(
    locks: LockClient, server: Scripted
) -> None:
    handle = await locks.acquire("key")
    waiting = await queue_up(locks, "key", 2)
    await handle.release()
    waiting[0].cancel()
    assert (await waiting[1]).fence == handle.fence + 2, "its fence must not be used again"


async def test_a_failed_acquire_passes_the_turn(locks: LockClient, server: Scripted) -> None:
    """Each waiter learns for itself that the server is away; nobody hangs."""

    async def refuse(claim: Claim) -> None:
        raise BackendUnavailable("away", definite=True)

    server.on_acquire = refuse
    tasks = [asyncio.create_task(locks.acquire("key")) for _ in range(3)]
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, BackendUnavailable)
    assert server.owners("release") == []


async def test_an_acquire_that_may_have_won_passes_the_turn_when_it_is_cleaned_up(
    locks: LockClient, server: Scripted
) -> None:
    failed: list[str] = []

    async def fail_once(claim: Claim) -> None:
        if not failed:
            failed.append(claim.owner)
            raise BackendUnavailable("lost", definite=False)

    server.on_acquire = fail_once
    tasks = [asyncio.create_task(locks.acquire("key")) for _ in range(2)]
    first, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, BackendUnavailable)
    assert isinstance(second, Handle)
    assert server.calls[1] == ("release", failed[0]), "given back before the next one asked"


async def test_clean_up_that_fails_for_good_does_not_block_the_key(
    locks: LockClient, server: Scripted
) -> None:
    """After a TTL the server has forgotten the claim by itself: acquire and try_acquire go on."""

    async def away(claim: Claim) -> None:
        raise BackendUnavailable("away", definite=False)

    for ask in (locks.acquire, locks.try_acquire):
        server.on_acquire = server.on_release = away
        with pytest.raises(BackendUnavailable):
            await ask("key", ttl=0.1)
        await until(lambda: not locks._core.cleanup.pending)
        server.on_acquire = server.on_release = None
        handle = None
        async with asyncio.timeout(30.0):
            while handle is None:
                handle = await ask("key", ttl=0.1)
                await asyncio.sleep(0.005)
        assert await handle.release()


async def test_a_holder_that_never_releases_costs_its_lease(locks: LockClient, server: Scripted) -> None:
    handle = await locks.acquire("key", ttl=0.1, renew=False)
    (waiting,) = await queue_up(locks, "key", 1, timeout=30.0)
    other = await waiting
    assert other.fence > handle.fence + HANDOFFS
    assert not handle.held
    # Its late release touches neither the server's new holder nor the queue.
    await handle.release()
    assert other.held
    assert locks._backend.commands == len(server.calls)


async def test_one_key_does_not_wait_for_another(locks: LockClient, server: Scripted) -> None:
    async def only_a(claim: Claim) -> None:
        if claim.key == "a":
            await never()

    server.on_acquire = only_a
    stuck = asyncio.create_task(locks.acquire("a"))
    await asyncio.sleep(0)
    assert (await locks.acquire("b")).held
    stuck.cancel()
    await asyncio.wait([stuck])


async def test_renewal_asks_for_the_claim_that_the_server_knows(locks: LockClient, server: Scripted) -> None:
    first = await locks.acquire("key")
    (waiting,) = await queue_up(locks, "key", 1)
    await first.release()
    second = await waiting
    await second.renew()
    assert server.owners("renew") == [first.owner]
    # The one who passed it on holds nothing any more.
    assert await locks._backend.renew([first._holding.grant]) == [LeaseState.LOST]


async def test_an_answer_about_an_earlier_lease_says_nothing_of_this_one(
    locks: LockClient, server: Scripted
) -> None:
    """A renewal is under way when the lock goes back to the server and comes again to the next one."""
    answered = asyncio.Event()

    async def lost_in_the_end(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        await answered.wait()
        return [LeaseState.LOST] * len(grants)

    first = await locks.acquire("key", ttl=10.0)
    (waiting,) = await queue_up(locks, "key", 1, ttl=20.0)
    server.on_renew = lost_in_the_end
    renewing = asyncio.create_task(locks._backend.renew([first._holding.grant]))
    await asyncio.sleep(0)
    assert await first.release()
    second = await waiting
    (third,) = await queue_up(locks, "key", 1, ttl=20.0)
    answered.set()
    assert await renewing == [LeaseState.LOST]
    assert await locks.try_acquire("key") is None
    await second.release()
    assert (await third).fence == second.fence + 1, "the second lease was doubted for the first one's sake"


async def test_a_renewed_lease_is_handed_on_with_its_end_counted_from_before_the_request(
    locks: LockClient, server: Scripted
) -> None:
    asked: list[float] = []

    async def slowly(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        asked.append(time.monotonic())
        await asyncio.sleep(0.2)
        return [LeaseState.RENEWED] * len(grants)

    first = await locks.acquire("key", ttl=60.0)
    (waiting,) = await queue_up(locks, "key", 1, ttl=60.0)
    server.on_renew = slowly
    await first.renew()
    await first.release()
    second = await waiting
    assert second.fence == first.fence + 1
    assert second.expires_at <= asked[0] + validity(60.0)


async def test_a_cancelled_waiter_leaves_its_place_in_the_queue(locks: LockClient, server: Scripted) -> None:
    queue = locks._backend
    assert isinstance(queue, LocalQueue)
    handle = await locks.acquire("key", ttl=0.2, renew=False)
    waiting = await queue_up(locks, "key", 3)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await until(lambda: not locks._core.cleanup.pending)
    assert not queue._places["key"].waiters
    assert server.owners("release") == [], "the server never heard of them"
    await until(lambda: not handle.held)
    tried = await locks.try_acquire("key")
    assert tried is not None, "nobody waits, and the lease is over"
    await tried.release()


async def test_a_cancelled_release_lets_the_next_one_go(locks: LockClient, server: Scripted) -> None:
    server.on_release = never
    handle = await locks.acquire("key", ttl=10.0)
    (waiting,) = await queue_up(locks, "key", 1, ttl=20.0)
    releasing = asyncio.create_task(handle.release())
    await asyncio.sleep(0)
    releasing.cancel()
    async with asyncio.timeout(30.0):
        assert (await waiting).fence > handle.fence
    await asyncio.wait([releasing])
    server.on_release = None
    assert server.owners("release")[0] == handle.owner


@pytest.mark.parametrize("waiters", [0, 3])
async def test_a_lease_left_to_run_out_leaves_nothing_behind(
    locks: LockClient, server: Scripted, waiters: int
) -> None:
    """Also one that was handed on: whoever releases it late still names the claim that the server knows."""
    queue = locks._backend
    assert isinstance(queue, LocalQueue)
    handles, known = [], []
    for number in range(3):
        handle = await locks.acquire(f"key {number}", ttl=3.0, renew=False)
        for task in await queue_up(locks, f"key {number}", waiters, ttl=3.0, renew=False):
            await handle.release()
            handle = await task
        handles.append(handle)
        known.append(server.owners("acquire")[-1])
    await until(lambda: not queue._places and not locks._core.watchdog.watched())
    server.calls.clear()
    for handle in handles:
        await handle.release()
    assert server.owners("release") == known
    assert not queue._unfinished


async def test_a_lease_that_its_holder_finds_lost_leaves_nothing_behind(
    locks: LockClient, server: Scripted
) -> None:
    queue = locks._backend
    assert isinstance(queue, LocalQueue)
    handle = await locks.acquire("key", ttl=0.05, renew=False)
    time.sleep(0.06)
    with pytest.raises(LockLost):
        handle.check()
    assert not queue._places


async def test_a_lost_counter_is_lifted_for_all_who_wait(
    locks: LockClient, server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """The block of the grant that showed it is stale, too: it is given back, not handed on."""
    fences: list[int] = []

    async def work() -> None:
        for _ in range(20):
            async with locks.hold("key") as handle:
                fences.append(handle.fence)
                await asyncio.sleep(0)
                if len(fences) in (50, 100, 150):
                    server.fence = 0

    before = locks._metrics.fence_regressions
    await asyncio.gather(*(work() for _ in range(10)))
    assert len(fences) == 200
    assert fences == sorted(set(fences)), "a fence ran backwards"
    assert locks._metrics.fence_regressions == before + 3, "once for each loss"
    assert "lost data" in caplog.text


async def test_a_counter_that_is_lost_time_and_again_is_reported_as_that(
    locks: LockClient, server: Scripted
) -> None:
    async def forget(claim: Claim) -> None:
        server.fence = 0

    await (await locks.acquire("key")).release()
    server.on_acquire = forget
    with pytest.raises(BackendUnavailable, match="losing data") as caught:
        await locks.acquire("key", ttl=10.0)
    assert "too short" not in str(caught.value)
    assert caught.value.key == "key"


async def test_nothing_is_handed_on_past_a_reader_that_asked_the_server_before(server: Scripted) -> None:
    queue = LocalQueue(server, handoffs=HANDOFFS, longest_turn=60.0)
    holder, writer = Claim("key", "holder", 30.0), Claim("key", "writer", 30.0)
    reader = SharedClaim("key", "reader", 30.0)
    await queue.acquire(holder)
    server.on_acquire = never
    asking = [asyncio.create_task(queue.acquire(claim)) for claim in (reader, writer)]
    await asyncio.sleep(0)
    assert server.owners("acquire") == ["holder", "reader"]
    assert await queue.release(holder)
    assert server.owners("release") == ["holder"]
    await until(lambda: server.owners("acquire") == ["holder", "reader", "writer"])
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)
    await queue.aclose()


async def test_no_fence_is_handed_on_below_what_was_asked_for(locks: LockClient, server: Scripted) -> None:
    handle = await locks.acquire("key")
    waiting = await queue_up(locks, "key", 2)
    await locks.raise_fence("key", above=handle.fence + 1)
    await handle.release()
    second = await waiting[0]
    assert second.fence > handle.fence + HANDOFFS, "a fence of a block from before"
    await second.release()
    assert (await waiting[1]).fence == second.fence + 1, "the new block is above"


async def test_no_block_that_was_reserved_while_the_floor_was_raised_is_handed_on(
    locks: LockClient, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_fence = server.raise_fence
    held: list[Handle] = []

    async def meanwhile(key: str, above: int) -> None:
        held.append(await locks.acquire(key))
        await raise_fence(key, above)

    monkeypatch.setattr(server, "raise_fence", meanwhile)
    await locks.raise_fence("key", above=100)
    (waiting,) = await queue_up(locks, "key", 1)
    assert held[0].fence < 100
    await held[0].release()
    assert (await waiting).fence > 100


async def test_failed_releases_cost_the_same_however_many_there_are(server: Scripted) -> None:
    """Sixteen times as many take about sixteen times as long, not two hundred and fifty times."""

    async def away(claim: Claim) -> None:
        raise BackendUnavailable("away", definite=False)

    async def cpu_for(number: int) -> float:
        queue = LocalQueue(server, handoffs=0)
        claims = [Claim(f"key {n}", f"owner {n}", 3600.0) for n in range(number)]
        for claim in claims:
            await queue.acquire(claim)
        server.on_release = away
        began = time.process_time()
        for claim in claims:
            with contextlib.suppress(BackendUnavailable):
                await queue.release(claim)
        spent = time.process_time() - began
        server.on_release = None
        return spent

    assert await cpu_for(8000) < 80 * max(await cpu_for(500), 0.001)


async def test_a_counter_lost_by_a_real_server_is_repaired_in_silence(redis_url: str, key: str) -> None:
    url = redis_url.replace("redis://", "redis-queue://", 1)
    fences: list[int] = []

    async def work() -> None:
        for _ in range(30):
            async with client.hold(key) as handle:
                fences.append(handle.fence)
                if len(fences) % 600 == 300:
                    (counter,) = [name async for name in redis.scan_iter(match=f"fence:*{key}*")]
                    await redis.set(counter, 0)
                await asyncio.sleep(0)
                if len(fences) % 600 == 300:
                    (counter,) = [name async for name in redis.scan_iter(match=f"fence:*{key}*")]
                    await redis.set(counter, 0)

    async with asyncdlock.connect(url) as client, Redis.from_url(redis_url) as redis:
        for _ in range(3):
            await asyncio.gather(*(work() for _ in range(20)))
    assert len(fences) == 1800
    assert fences == sorted(set(fences)), "a fence ran backwards"


class Polled(Scripted):
    """A backend that wakes nobody, and notes when it was asked."""

    capabilities = replace(Scripted.capabilities, push_wakeup=False)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        self.asked.append(time.monotonic())
        return await super().acquire(claim, reserve=reserve)


@pytest.mark.parametrize(("longest_turn", "left_free"), [(0.0, True), (60.0, False)])
async def test_a_lock_that_others_poll_is_left_free_after_a_whole_turn(
    longest_turn: float, left_free: bool
) -> None:
    """The next waiter's request goes out with the release: nobody else would ever find the lock free."""
    server = Polled()
    async with LockClient(LocalQueue(server, handoffs=0, longest_turn=longest_turn)) as locks:
        handle = await locks.acquire("key")
        waiting = await queue_up(locks, "key", 3)
        released = []
        for task in waiting:
            released.append(time.monotonic())
            await handle.release()
            handle = await task
        await handle.release()
    if left_free:
        # From the second turn on: nobody waited when the first began.
        pairs = zip(server.asked[2:], released[1:], strict=True)
        assert all(asked - left >= 0.01 for asked, left in pairs)
    else:
        calls = [verb for verb, _ in server.calls]
        assert calls.count("acquire") == 4
