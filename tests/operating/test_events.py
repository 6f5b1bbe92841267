"""What goes wrong is logged with its key and fence, and told to `on_lost`."""

import logging
import time
import uuid

import pytest

import asyncdlock
from asyncdlock.types import LeaseState
from harness import servers
from tests.contract.fixtures import until
from tests.core.scripted import Scripted


def said(caplog: pytest.LogCaptureFixture, text: str) -> list[tuple[str, int]]:
    """Key and fence of every record of ours that contains `text`."""
    return [
        (record.__dict__["key"], record.__dict__["fence"])
        for record in caplog.records
        if record.name == "asyncdlock" and text in record.getMessage()
    ]


@pytest.fixture
def name() -> str:
    return f"memory://{uuid.uuid4().hex}"


async def test_a_lost_lease_is_logged_and_told_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[asyncdlock.LockLost] = []
    async with asyncdlock.connect(name, on_lost=told.append, prefix="app:") as locks:
        handle = await locks.acquire("k", ttl=0.05, renew=False)
        assert await handle.wait_lost()
        with pytest.raises(asyncdlock.LockLost):
            handle.check()
        await handle.release()
        kept = await locks.acquire("kept")
        await kept.release()
    assert [(error.key, error.fence, error.owner) for error in told] == [("k", handle.fence, handle.owner)]
    assert said(caplog, "was lost") == [("k", handle.fence)]


async def test_a_callback_that_nobody_would_await_is_refused(name: str) -> None:
    async def lost(_: asyncdlock.LockLost) -> None:
        pytest.fail("never called")

    for bad in (lost, "lost"):
        with pytest.raises(ValueError, match="on_lost must be a plain function"):
            asyncdlock.connect(name, on_lost=bad)  # type: ignore[arg-type]


async def test_a_lock_found_lost_at_its_release_is_told(name: str) -> None:
    told: list[asyncdlock.LockLost] = []
    async with asyncdlock.connect(name, on_lost=told.append) as locks, asyncdlock.connect(name) as operator:
        handle = await locks.acquire("k", ttl=60.0)
        await operator.force_release("k")
        assert await handle.release() is False
        assert [error.fence for error in told] == [handle.fence]


async def test_closing_is_no_loss(name: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[asyncdlock.LockLost] = []
    async with asyncdlock.connect(name, on_lost=told.append) as locks:
        await locks.acquire("k")
    assert told == []
    assert said(caplog, "was lost") == []


async def test_a_callback_that_fails_harms_nobody(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: asyncdlock.LockLost) -> None:
        raise RuntimeError("oops")

    async with asyncdlock.connect(name, on_lost=fails) as locks:
        handle = await locks.acquire("k", ttl=0.05, renew=False)
        assert await handle.wait_lost()
        with pytest.raises(asyncdlock.LockLost):
            handle.check()
    assert said(caplog, "callback failed") == [("k", handle.fence)]


async def test_a_renewal_without_an_answer_is_logged_with_its_lock(caplog: pytest.LogCaptureFixture) -> None:
    """A frozen server; the lock is lost in the end, and that is logged as well."""
    async with servers.redis() as node, asyncdlock.connect(node.url) as locks:
        handle = await locks.acquire("k", ttl=0.5)
        node.pause()
        try:
            await until(lambda: bool(said(caplog, "did not confirm its renewal")))
            assert await handle.wait_lost()
        finally:
            node.resume()
    assert set(said(caplog, "did not confirm its renewal")) == {("k", handle.fence)}
    assert said(caplog, "was lost") == [("k", handle.fence)]


async def test_many_failing_renewals_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def silent(grants: object) -> list[LeaseState]:
        return [LeaseState.UNKNOWN] * len(grants)  # type: ignore[arg-type]

    backend = Scripted()
    backend.on_renew = silent
    async with asyncdlock.LockClient(backend, metrics=False) as locks:
        held = [await locks.acquire(f"k{number}", ttl=3.0) for number in range(500)]
        await until(lambda: "further locks" in caplog.text)
        named = said(caplog, "left: the server did not confirm")
        assert 20 <= len(named) < len(held)


async def test_a_slow_loop_is_logged_with_the_locks_that_it_endangers(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncdlock.connect(name) as locks:
        handle = await locks.acquire("short", ttl=1.0)
        await locks.acquire("long", ttl=600.0)
        time.sleep(0.7)
        await until(lambda: bool(said(caplog, "event loop was blocked")))
    assert said(caplog, "event loop was blocked") == [("short", handle.fence)]


async def test_a_fence_that_runs_back_is_logged_with_its_lock(caplog: pytest.LogCaptureFixture) -> None:
    async with servers.redis() as node, asyncdlock.connect(node.url, prefix="app:") as locks:
        for _ in range(3):
            async with locks.hold("k"):
                pass
        await node.command("DEL", "fence:{app:k}")
        async with locks.hold("k") as handle:
            assert handle.fence > 3
    assert said(caplog, "went back from 3 to 1") == [("k", 1)]


async def test_errors_say_which_lock_and_which_attempt(name: str) -> None:
    async with asyncdlock.connect(name) as locks:
        handle = await locks.acquire("k")
        with pytest.raises(asyncdlock.AcquireTimeout) as late:
            await locks.acquire("k", timeout=0.01)
        assert late.value.key == "k"
        assert late.value.owner not in (None, handle.owner)
        await handle.release()
        with pytest.raises(asyncdlock.LockLost) as lost:
            handle.check()
        assert (lost.value.key, lost.value.owner, lost.value.fence) == ("k", handle.owner, handle.fence)


def test_a_library_writes_nothing_by_itself() -> None:
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("asyncdlock").handlers)
