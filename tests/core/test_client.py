"""What the client does with grants that cannot be used, counters that were lost, and calls that failed."""

import asyncio
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
    before = locks.metrics.fence_regressions
    for loss in range(3):
        for _ in range(4):
            async with locks.hold("key") as handle:
                assert handle.fence > seen, "a fence ran backwards"
                seen = handle.fence
        server.fence = 0
        assert locks.metrics.fence_regressions == before + loss
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
    assert [verb for verb, _ in server.calls] == ["acquire", "release", "raise_fence", "acquire"]


async def test_the_timeout_covers_the_repair(locks: LockClient, server: Scripted) -> None:
    await (await locks.acquire("key")).release()
    server.fence = 0
    server.on_release = never
    with pytest.raises(asyncdlock.AcquireTimeout):
        await locks.acquire("key", timeout=0.05)
    server.on_release = None


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


async def test_closing_with_a_server_that_is_away_ends(
    locks: LockClient, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain is bounded; what could not be given back is left to its TTL."""
    monkeypatch.setattr("asyncdlock.client._CLOSE_TIMEOUT", 0.1)
    handle = await locks.acquire("key")
    server.on_release = never
    async with asyncio.timeout(30.0):
        await locks.aclose()
    assert not handle.held
    assert server.calls[-1] == ("aclose", "")
