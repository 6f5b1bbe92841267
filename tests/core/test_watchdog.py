"""The watchdog: renews many at a time, moves a deadline only on a yes, and is not needed for the end."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import pytest

import asyncdlock
from asyncdlock._watchdog import Watchdog
from asyncdlock.client import LockClient
from asyncdlock.errors import BackendError, BackendUnavailable, LockLost
from asyncdlock.types import Grant, LeaseState, validity
from tests.contract.fixtures import until
from tests.core.scripted import Scripted, never

TTL = 0.3


@pytest.fixture
def server() -> Scripted:
    return Scripted()


@pytest.fixture
async def locks(server: Scripted) -> AsyncIterator[LockClient]:
    client = LockClient(server)
    yield client
    server.on_acquire = server.on_release = server.on_renew = None
    await client.aclose()


def wheel(locks: LockClient) -> Watchdog:
    watchdog = locks._core.watchdog
    assert isinstance(watchdog, Watchdog)
    return watchdog


async def lost(handle: asyncdlock.Handle) -> None:
    async with asyncio.timeout(30.0):
        await handle.wait_lost()


async def test_unknown_moves_nothing_and_is_tried_again(locks: LockClient, server: Scripted) -> None:
    async def silence(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [LeaseState.UNKNOWN] * len(grants)

    server.on_renew = silence
    unknown = locks._metrics.renewals["unknown"]
    handle = await locks.acquire("key", ttl=TTL)
    end = handle.expires_at
    await lost(handle)
    assert handle.expires_at == end
    assert time.monotonic() >= end, "an unanswered renewal is not yet a loss"
    assert len(server.owners("renew")) > 1
    assert locks._metrics.renewals["unknown"] > unknown
    with pytest.raises(LockLost, match="ran out"):
        handle.check()


async def test_an_answer_after_silence_saves_the_lease(locks: LockClient, server: Scripted) -> None:
    states = iter([LeaseState.UNKNOWN])

    async def once(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [next(states, LeaseState.RENEWED)] * len(grants)

    server.on_renew = once
    handle = await locks.acquire("key", ttl=TTL)
    end = handle.expires_at
    await until(lambda: handle.expires_at > end)
    assert handle.held


async def test_lost_ends_the_lease_at_once(locks: LockClient, server: Scripted) -> None:
    async def gone(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [LeaseState.LOST] * len(grants)

    server.on_renew = gone
    handle = await locks.acquire("key", ttl=60.0)
    with pytest.raises(LockLost, match="another or expired"):
        await handle.renew()
    assert handle.remaining() == 0.0
    short = await locks.acquire("key", ttl=TTL)
    await lost(short)
    with pytest.raises(LockLost, match="another or expired"):
        short.check()


async def test_a_hung_renewal_is_given_up_and_extends_nothing(locks: LockClient, server: Scripted) -> None:
    """And another one is sent while the lease lives: one hung request does not use it up.

    How much time there is for that is the machine's business, so the lease is long, and the clock of the
    lease decides: not how late this test runs.
    """
    given_up = 0

    async def hang(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        nonlocal given_up
        try:
            await never()
        finally:
            given_up += 1
        return []

    server.on_renew = hang
    for ttl in (0.6, 2.0, 6.0, 18.0):  # a stall of the machine may cost one try
        given_up = 0
        handle = await locks.acquire("key", ttl=ttl)
        end = handle.expires_at
        await until(lambda: given_up > 0 or not handle.held)  # noqa: B023
        in_time = handle.held
        await lost(handle)
        assert handle.expires_at == end
        if in_time:
            break
    assert in_time, "a hung request was never given up before its lease had ended"
    assert len(server.owners("renew")) > 1, "one hung request used up the whole lease"


async def test_a_slow_yes_counts_from_before_it_was_asked_for(locks: LockClient, server: Scripted) -> None:
    asked: list[float] = []

    async def slowly(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        asked.append(time.monotonic())
        await asyncio.sleep(0.1)
        return [LeaseState.RENEWED] * len(grants)

    server.on_renew = slowly
    handle = await locks.acquire("key", ttl=0.6)
    end = handle.expires_at
    await until(lambda: handle.expires_at > end)
    assert handle.expires_at <= asked[0] + validity(0.6)
    manual = await locks.acquire("other", ttl=60.0)
    before = time.monotonic()
    await manual.renew()
    assert manual.expires_at <= asked[-1] + validity(60.0)
    assert manual.expires_at <= before + 0.1 + validity(60.0)


async def test_a_yes_that_comes_after_the_end_brings_nothing_back(
    locks: LockClient, server: Scripted
) -> None:
    async def late(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        await asyncio.sleep(0.3)
        return [LeaseState.RENEWED] * len(grants)

    handle = await locks.acquire("key", ttl=0.2, renew=False)
    server.on_renew = late
    renewing = asyncio.create_task(handle.renew())
    await lost(handle)
    await asyncio.wait([renewing])
    assert not handle.held
    with pytest.raises(LockLost):
        handle.check()


async def test_a_yes_brings_nothing_back_whose_end_went_unnoticed(
    locks: LockClient, server: Scripted
) -> None:
    """The loop stood still when the lease ran out: others may have held the lock since."""

    async def late(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        while time.monotonic() < handle.expires_at:
            time.sleep(0.01)
        return [LeaseState.RENEWED] * len(grants)

    handle = await locks.acquire("key", ttl=2.0, renew=False)
    time.sleep(max(0.0, handle.remaining() - 0.2))
    server.on_renew = late
    with pytest.raises(LockLost, match="ran out"):
        await handle.renew()
    assert not handle.held


@pytest.mark.parametrize("defect", ["raises", "too few answers"])
async def test_a_defect_of_the_backend_extends_nothing_and_leaves_nobody_unwatched(
    locks: LockClient, server: Scripted, defect: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        if defect == "raises":
            raise RuntimeError("a bug")
        return [LeaseState.RENEWED] * (len(grants) - 1)

    server.on_renew = broken
    handles = [await locks.acquire(f"key-{n}", ttl=TTL) for n in range(3)]
    ends = [handle.expires_at for handle in handles]
    for handle in handles:
        await lost(handle)
    assert [handle.expires_at for handle in handles] == ends
    assert "renewal failed" in caplog.text


async def test_a_release_during_a_renewal_is_final(locks: LockClient, server: Scripted) -> None:
    answered = asyncio.Event()

    async def slowly(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        await answered.wait()
        return [LeaseState.RENEWED] * len(grants)

    server.on_renew = slowly
    handle = await locks.acquire("key", ttl=60.0)
    renewing = asyncio.create_task(handle.renew())
    await asyncio.sleep(0)
    assert await handle.release()
    answered.set()
    await renewing
    assert not handle.held
    assert handle.remaining() == 0.0


async def test_a_lock_released_during_the_watchdogs_renewal_is_not_watched_again(
    locks: LockClient, server: Scripted
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slowly(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        asked.set()
        await answered.wait()
        return [LeaseState.RENEWED] * len(grants)

    server.on_renew = slowly
    renewed = locks._metrics.renewals["renewed"]
    handle = await locks.acquire("key", ttl=3.0)
    end = handle.expires_at
    await asked.wait()
    assert await handle.release()
    answered.set()
    await until(lambda: not wheel(locks)._renewing)
    assert locks._core.watchdog.watched() == []
    assert handle.expires_at == end
    assert locks._metrics.renewals["renewed"] == renewed


async def test_a_loss_ends_the_body_at_once_whatever_is_answered_later(
    locks: LockClient, server: Scripted
) -> None:
    """Not with the lease, which lasts; and a yes on its way moves the end of nothing."""
    told = asyncio.Event()
    answers = iter([LeaseState.RENEWED, LeaseState.LOST])

    async def first_yes_comes_last(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        answer = next(answers)
        if answer is LeaseState.LOST:
            told.set()
        else:
            await told.wait()
        return [answer] * len(grants)

    async def body() -> None:
        async with locks.hold("key", ttl=600.0) as handle:
            server.on_renew = first_yes_comes_last
            end = handle.expires_at
            renewals.extend(asyncio.create_task(handle.renew()) for _ in range(2))
            ends.append((handle, end))
            await never()

    ends: list[tuple[asyncdlock.Handle, float]] = []
    renewals: list[asyncio.Task[None]] = []
    with pytest.raises(LockLost):
        await asyncio.wait_for(body(), 30.0)
    for renewal in renewals:
        with pytest.raises(LockLost):
            await renewal
    ((handle, end),) = ends
    assert handle.expires_at == end


async def test_a_renewal_by_hand_without_an_answer_changes_nothing(
    locks: LockClient, server: Scripted
) -> None:
    async def silence(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [LeaseState.UNKNOWN] * len(grants)

    server.on_renew = silence
    handle = await locks.acquire("key", ttl=60.0)
    end = handle.expires_at
    unknown = locks._metrics.renewals["unknown"]
    with pytest.raises(BackendError, match="not confirmed") as caught:
        await handle.renew()
    assert not caught.value.definite
    assert (caught.value.key, caught.value.fence, caught.value.owner) == ("key", handle.fence, handle.owner)
    assert handle.held, "unknown is not lost"
    assert handle.expires_at == end
    assert locks._metrics.renewals["unknown"] == unknown + 1


async def test_what_the_dead_mans_switch_ended_is_given_back(locks: LockClient, server: Scripted) -> None:
    """The server may hold it still: no renewal was refused."""

    async def silence(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [LeaseState.UNKNOWN] * len(grants)

    server.on_renew = silence
    for swallow in (False, True):
        server.calls.clear()
        with pytest.raises(LockLost, match="ran out"):
            async with locks.hold("key", ttl=TTL) as handle:
                try:
                    await never()
                except asyncio.CancelledError:
                    if not swallow:
                        raise
        await until(lambda: server.owners("release") == [handle.owner])


async def test_leaving_a_lock_that_is_no_longer_owned(locks: LockClient, server: Scripted) -> None:
    """The body believed to hold it until its end: it is told. Its own error is not replaced."""
    server.owned = False
    lost, refused = locks._metrics.lost, locks._metrics.release_by_non_owner
    with pytest.raises(LockLost, match="no longer owned when it was released"):
        async with locks.hold("key"):
            pass
    with pytest.raises(ValueError, match="mine"):
        async with locks.hold("key"):
            raise ValueError("mine")
    with pytest.raises(LockLost, match="no longer owned when it was released"):
        async with locks.hold("key") as handle:
            assert await handle.release() is False
    assert locks._metrics.lost == lost + 3
    assert locks._metrics.release_by_non_owner == refused + 3
    sent = len(server.calls)
    assert await handle.release() is False
    assert len(server.calls) == sent, "there is nothing left to give back"


async def test_a_release_without_an_answer_after_the_lease_has_ended_is_a_loss(
    locks: LockClient, server: Scripted
) -> None:
    """Neither the clock nor the server vouches for what the body did."""

    async def away(claim: object) -> None:
        raise BackendUnavailable("away")

    server.on_release = away
    with pytest.raises(LockLost):
        async with locks.hold("key", ttl=0.05, renew=False):
            time.sleep(0.06)
    server.on_release = None


async def test_nothing_is_renewed_after_its_release(locks: LockClient, server: Scripted) -> None:
    for _ in range(10):
        await (await locks.acquire("key", ttl=0.05)).release()
    await asyncio.sleep(0.1)
    assert server.owners("renew") == []


async def test_hold_ends_its_body_although_the_watchdog_is_dead(locks: LockClient, server: Scripted) -> None:
    """The lease's own deadline is armed: nothing has to be alive for the body to end."""
    with pytest.raises(LockLost, match="ran out"):
        async with locks.hold("key", ttl=TTL) as handle:
            timer = wheel(locks)._timer
            assert timer is not None
            timer.cancel()
            await never()
    assert server.owners("renew") == []
    assert not handle.held


async def test_a_body_that_swallows_its_end_is_told_although_the_watchdog_is_dead(
    locks: LockClient, server: Scripted
) -> None:
    with pytest.raises(LockLost, match="ran out"):
        async with locks.hold("key", ttl=TTL):
            timer = wheel(locks)._timer
            assert timer is not None
            timer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await never()


async def test_hold_ends_its_body_although_the_server_is_silent(locks: LockClient, server: Scripted) -> None:
    async def hang(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        await never()
        return []

    server.on_renew = hang
    with pytest.raises(LockLost, match="ran out"):
        async with locks.hold("key", ttl=TTL) as handle:
            end = handle.expires_at
            await never()
    assert handle.expires_at == end
    assert time.monotonic() < end + 10.0


async def test_a_failed_release_on_the_way_out_of_hold_is_retried_and_not_raised(
    locks: LockClient, server: Scripted
) -> None:
    failures = 2

    async def fail(claim: object) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise BackendUnavailable("away")

    server.on_release = fail
    async with locks.hold("key"):
        pass
    await until(lambda: len(server.owners("release")) == 3)


async def test_a_stalled_loop_is_measured(locks: LockClient, server: Scripted) -> None:
    handle = await locks.acquire("key", ttl=TTL)
    time.sleep(TTL)
    await lost(handle)
    assert locks.max_loop_lag > TTL / 3
    assert locks._metrics.loop_lag >= 0.0


async def test_long_leases_of_short_holders_cost_no_memory(locks: LockClient, server: Scripted) -> None:
    """A day's TTL must not leave a trace for a day of every lock that was held for a moment."""
    clock = time.monotonic()
    for n in range(300):
        handle = await locks.acquire("key", ttl=86_400.0)
        holding = handle._holding
        assert holding.bucket is not None
        # As if they had been taken one second after another.
        holding.bucket.discard(holding)
        holding.expires_at = clock + 86_400.0 + n
        locks._core.watchdog.watch(holding, clock)
        assert holding in locks._core.watchdog.watched()
        await handle.release()
    assert len(wheel(locks)._order) < 150


async def test_ten_thousand_locks_take_a_handful_of_requests_and_no_task_each(
    redis_url: str, key: str
) -> None:
    number = 1_000 if asyncio.get_running_loop().get_debug() else 10_000
    async with asyncdlock.connect(redis_url) as locks:
        tasks = len(asyncio.all_tasks())
        handles: list[asyncdlock.Handle] = []
        for start in range(0, number, 500):
            handles += await asyncio.gather(
                *(locks.acquire(f"{key}:{n}", ttl=20.0) for n in range(start, start + 500))
            )
        commands = locks._backend.commands
        buckets = len({id(handle._holding.bucket) for handle in handles})
        most = 0

        def all_renewed() -> bool:
            nonlocal most
            most = max(most, len(asyncio.all_tasks()) - tasks)
            return all(handle.expires_at > end for handle, end in zip(handles, ends, strict=True))

        ends = [handle.expires_at for handle in handles]
        await until(all_renewed)
        assert most <= 60, "a task for each lock, or nearly"
        # A request for each bucket of the wheel and each 256 locks. Slow acquisitions fill more buckets, and
        # the first may be due a second time before the last is.
        requests = locks._backend.commands - commands
        assert requests <= min(number / 4, 2 * (buckets + number / 256))
        assert all(handle.held for handle in handles)


@pytest.mark.parametrize("when", ["at once", "past its time in the wheel", "during its renewal"])
async def test_closing_gives_back_a_lock_whose_release_is_under_way(
    locks: LockClient, server: Scripted, when: str
) -> None:
    """The release may have been lost; what closes the client asks once more, and then waits for neither."""
    renewing = asyncio.Event()
    answer = asyncio.Event()

    async def renewed(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        renewing.set()
        await answer.wait()
        return [LeaseState.UNKNOWN] * len(grants)

    server.on_renew = renewed
    handle = await locks.acquire("key", ttl=3.0)
    if when == "during its renewal":
        await asyncio.wait_for(renewing.wait(), 10)
    server.on_release = never
    releasing = asyncio.create_task(handle.release())
    await until(lambda: server.owners("release") == [handle.owner])
    if when == "past its time in the wheel":
        await until(lambda: min(wheel(locks)._order, default=0) > (time.monotonic() + 10) * 100)
    elif when == "during its renewal":
        answer.set()
        await until(lambda: not wheel(locks)._renewing)
    server.on_release = None
    await locks.aclose()
    assert server.owners("release") == [handle.owner] * 2
    releasing.cancel()
    await asyncio.wait((releasing,))
