"""What the client does with grants that cannot be used, counters that were lost, and calls that failed."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

import asyncdlock
from asyncdlock.client import LockClient
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim
from tests.contract.fixtures import until
from tests.core.scripted import Scripted, never


@pytest.fixture
def server() -> Scripted:
    return Scripted()


@pytest.fixture
async def locks(server: Scripted) -> AsyncIterator[LockClient]:
    client = LockClient(server)
    yield client
    server.on_acquire = server.on_release = server.on_renew = None
    await client.aclose()


async def test_a_grant_that_expired_on_its_way_is_given_back_and_asked_for_again(
    locks: LockClient, server: Scripted
) -> None:
    for ask in (locks.acquire, locks.try_acquire):
        server.calls.clear()
        server.expired_on_arrival = 2
        handle = await ask("key")
        assert handle is not None
        assert handle.held
        assert [verb for verb, _ in server.calls] == ["acquire", "release"] * 2 + ["acquire"]
        tries = server.owners("acquire")
        assert len(set(tries)) == 3, "what is late of one try must not touch the next"
        assert server.owners("release") == tries[:2]
        assert handle.owner == tries[2]


async def test_a_ttl_shorter_than_the_servers_answer_is_reported(locks: LockClient, server: Scripted) -> None:
    server.expired_on_arrival = 1000
    with pytest.raises(BackendUnavailable, match="too short for this server"):
        await locks.acquire("key", ttl=0.05)
    await until(lambda: server.calls[-1][0] == "release")


async def test_hold_never_enters_its_body_with_an_expired_grant(locks: LockClient, server: Scripted) -> None:
    server.expired_on_arrival = 1
    async with locks.hold("key") as handle:
        handle.check()


async def test_a_lost_counter_is_lifted_before_anybody_sees_its_fence(
    locks: LockClient, server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    seen = 0
    before = locks._metrics.fence_regressions
    for loss in range(3):
        for _ in range(4):
            async with locks.hold("key") as handle:
                assert handle.fence > seen, "a fence ran backwards"
                seen = handle.fence
        server.fence = 0
        assert locks._metrics.fence_regressions == before + loss
    assert "lost data" in caplog.text


async def test_try_acquire_does_not_wait_when_the_counter_was_lost(
    locks: LockClient, server: Scripted
) -> None:
    await (await locks.acquire("key")).release()
    server.fence = 0
    server.calls.clear()
    handle = await locks.try_acquire("key")
    assert handle is not None
    assert handle.fence == 2
    assert [verb for verb, _ in server.calls] == ["acquire", "raise_fence", "release", "acquire"]


async def test_the_timeout_covers_the_repair(locks: LockClient, server: Scripted) -> None:
    await (await locks.acquire("key")).release()
    server.fence = 0
    server.on_release = never
    with pytest.raises(asyncdlock.AcquireTimeout):
        await locks.acquire("key", timeout=0.05)
    server.on_release = None


@pytest.mark.parametrize("tries", [1, 2])
@pytest.mark.parametrize("verb", ["release", "raise_fence"])
async def test_a_repair_that_fails_leaves_no_grant_behind(
    locks: LockClient, server: Scripted, verb: str, tries: int
) -> None:
    """What failed for certain is the repair; the lock was granted all the same."""
    refused = []

    async def refuse(*_: object) -> None:
        refused.append(verb)
        server.fence = 0  # also the next grant is of no use
        if len(refused) == tries:
            raise BackendError("READONLY", definite=True)

    await (await locks.acquire("key")).release()
    server.calls.clear()
    server.fence = 0
    setattr(server, f"on_{verb}", refuse)
    with pytest.raises(BackendError, match="READONLY") as caught:
        await locks.acquire("key")
    assert not caught.value.definite, "the lock was granted"
    last = server.owners("acquire")[-1]
    await until(lambda: server.owners("release").count(last) >= (2 if verb == "release" else 1))


async def test_a_call_that_certainly_failed_is_not_given_back(locks: LockClient, server: Scripted) -> None:
    async def refuse(claim: Claim) -> None:
        raise BackendError("no", definite=True)

    server.on_acquire = refuse
    with pytest.raises(BackendError, match="no"):
        await locks.acquire("key")
    await asyncio.sleep(0)
    assert server.owners("release") == []


@pytest.mark.parametrize(
    "error", [BackendUnavailable("lost"), RuntimeError("a bug"), asyncdlock.QueueFull("full")]
)
async def test_a_call_that_may_have_won_is_given_back(
    locks: LockClient, server: Scripted, error: Exception
) -> None:
    async def fail(claim: Claim) -> None:
        raise error

    server.on_acquire = fail
    with pytest.raises(type(error)):
        await locks.acquire("key")
    await until(lambda: server.owners("release") == server.owners("acquire"))


async def test_giving_back_is_tried_again_until_the_ttl_makes_it_pointless(
    locks: LockClient, server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(claim: Claim) -> None:
        raise BackendUnavailable("away")

    server.on_acquire = server.on_release = away
    with pytest.raises(BackendUnavailable):
        await locks.acquire("key", ttl=0.3)
    await until(lambda: "it expires with its TTL" in caplog.text)
    assert len(server.owners("release")) > 1


async def test_a_place_in_a_queue_is_given_back_also_after_its_ttl(
    locks: LockClient, server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease ends by itself, a place does not: it would stay for as long as its session lives."""

    async def away(claim: Claim) -> None:
        raise BackendUnavailable("away")

    server.on_acquire = server.on_release = away
    with pytest.raises(BackendUnavailable) as failed:
        await locks.acquire("key", ttl=0.01)
    await until(lambda: len(server.owners("release")) > 1)
    server.on_release = None
    await until(lambda: not locks._core.cleanup.pending)
    assert server.calls[-1] == ("release", failed.value.owner)
    assert "could not give back" not in caplog.text


async def test_a_failed_release_can_be_retried(locks: LockClient, server: Scripted) -> None:
    handle = await locks.acquire("key")

    async def away(claim: Claim) -> None:
        raise BackendUnavailable("away")

    server.on_release = away
    with pytest.raises(BackendUnavailable):
        await handle.release()
    assert not handle.held, "whether it still holds is not known"
    server.on_release = None
    assert await handle.release() is True
    assert await handle.release() is False


async def test_a_cancelled_release_is_repeated_in_the_background(locks: LockClient, server: Scripted) -> None:
    """The cancelled request may never have left this process."""
    handle = await locks.acquire("key")
    server.on_release = never
    releasing = asyncio.create_task(handle.release())
    await until(lambda: server.owners("release") == [handle.owner])
    server.on_release = None
    releasing.cancel()
    await until(lambda: server.owners("release") == [handle.owner] * 2)
    assert releasing.cancelled()


async def test_closing_with_a_server_that_is_away_ends(
    locks: LockClient, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain is bounded; what could not be given back is left to its TTL."""
    monkeypatch.setattr("asyncdlock._core._CLOSE_TIMEOUT", 0.1)
    handle = await locks.acquire("key")
    server.on_release = never
    async with asyncio.timeout(30.0):
        await locks.aclose()
    assert not handle.held
    assert server.calls[-1] == ("aclose", "")


async def test_an_acquire_that_fails_on_its_second_try_gives_both_back(
    locks: LockClient, server: Scripted
) -> None:
    async def fail_later(claim: Claim) -> None:
        if len(server.owners("acquire")) > 1:
            raise BackendUnavailable("lost")

    server.expired_on_arrival = 1
    server.on_acquire = fail_later
    with pytest.raises(BackendUnavailable) as caught:
        await locks.acquire("key")
    assert (caught.value.key, caught.value.owner) == ("key", server.owners("acquire")[0])
    await until(lambda: set(server.owners("release")) == set(server.owners("acquire")))
    assert len(set(server.owners("acquire"))) == 2


@pytest.mark.parametrize("number", [100, 3000])
async def test_many_locks_are_given_back_by_a_few_tasks_that_let_others_work(
    server: Scripted, number: int
) -> None:
    locks = LockClient(server)
    handles = await asyncio.gather(*(locks.acquire(f"key {n}", ttl=600.0) for n in range(number)))
    most, turns = 0, 0

    async def slowly(claim: Claim) -> None:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    server.on_release = slowly
    ticking = asyncio.create_task(tick())
    await locks.aclose()
    ticking.cancel()
    await asyncio.wait([ticking])
    assert sorted(server.owners("release")) == sorted(handle.owner for handle in handles)
    assert not any(handle.held for handle in handles)
    assert most < 300, "a task for each lock, or nearly"
    assert turns > number // 300, "the event loop stood still while all was given back"


async def test_closing_goes_on_for_as_long_as_something_is_given_back(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes longer than the time-out in all is not left to its TTL while it gets done."""
    monkeypatch.setattr("asyncdlock._core._CLOSE_TIMEOUT", 1.0)
    monkeypatch.setattr("asyncdlock._cleanup._WORKERS", 1)
    locks = LockClient(server)
    handles = [await locks.acquire(f"key {n}", ttl=600.0) for n in range(15)]

    async def slowly(claim: Claim) -> None:
        await asyncio.sleep(0.1)

    server.on_release = slowly
    await locks.aclose()
    assert len(server.owners("release")) == len(handles)


async def test_a_failing_give_back_does_not_hold_up_the_others(locks: LockClient, server: Scripted) -> None:
    """As when one shard of a cluster is away: its claims wait for their next try without a worker."""

    async def away(claim: Claim) -> None:
        if claim.key.startswith("dead"):
            raise BackendUnavailable("away")

    server.on_release = away
    for n in range(1000):
        locks._core.cleanup.give_back(Claim(f"dead {n}", f"dead {n}", 600.0))
    for n in range(100):
        locks._core.cleanup.give_back(Claim(f"alive {n}", f"alive {n}", 600.0))
    await until(lambda: {f"alive {n}" for n in range(100)} <= set(server.owners("release")))
    server.on_release = None


def test_another_event_loop_is_refused(redis_url: str) -> None:
    """In this thread or in another: with a sentence, not with a hang."""
    locks = asyncdlock.connect(redis_url)
    said: list[str] = []

    async def use() -> asyncdlock.Handle:
        return await locks.acquire(f"loops-{id(locks)}", ttl=5.0)

    async def misuse(handle: asyncdlock.Handle) -> None:
        for call in (use, handle.renew, handle.release, locks.aclose):
            with pytest.raises(asyncdlock.LockError, match="another event loop") as caught:
                async with asyncio.timeout(30.0):
                    await call()
            said.append(str(caught.value))

    with asyncio.Runner() as runner:
        handle = runner.run(use())
        other = threading.Thread(target=asyncio.run, args=(misuse(handle),))
        other.start()
        other.join(60.0)
        with asyncio.Runner() as second:
            second.run(misuse(handle))
        assert len(said) == 8
        assert runner.run(handle.release()) is True
        runner.run(locks.aclose())
