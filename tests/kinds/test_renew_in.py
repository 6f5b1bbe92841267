"""connect(renew_in="thread"): a blocked event loop keeps its leases; a lost one still ends its body."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

import asyncdlock
from asyncdlock._thread_backend import ThreadBackend
from asyncdlock.backend import Backend
from asyncdlock.errors import BackendUnavailable
from asyncdlock.types import Claim, Grant, LeaseState
from harness import servers
from tests.contract.cases import Case, backends
from tests.contract.fixtures import Connect, until
from tests.contract.test_hold import forever
from tests.contract.test_lease import take_away
from tests.core.scripted import Scripted

# memory:// lives in the event loop: nobody could renew it from elsewhere.
outside_the_loop = backends(that=lambda can: can.interprocess)


@pytest.fixture
def threaded(connect: Connect) -> asyncdlock.LockClient:
    """A client of the backend under test that renews in a thread."""
    return connect(renew_in="thread")


@outside_the_loop
async def test_a_body_that_blocks_for_three_ttls_keeps_its_lock(
    threaded: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    other = connect(renew_in="loop")
    async with threaded.hold(key, ttl=ttl) as handle:
        time.sleep(3 * ttl)
        handle.check()
        await asyncio.sleep(0)
        handle.check()
        assert await other.try_acquire(key) is None
        time.sleep(1.5 * ttl)
        handle.check()
    async with other.hold(key, timeout=60.0) as next_one:
        assert next_one.fence > handle.fence


async def test_without_it_the_same_body_loses_its_lock(
    case: Case, connect: Connect, key: str, ttl: float
) -> None:
    locks = connect(renew_in="loop")
    with pytest.raises(asyncdlock.LockLost, match="ran out"):
        async with locks.hold(key, ttl=ttl) as handle:
            time.sleep(3 * ttl)
            handle.check()


@outside_the_loop
async def test_max_hold_bounds_a_loop_that_is_blocked_for_longer(
    threaded: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    with pytest.raises(asyncdlock.LockLost):
        async with threaded.hold(key, ttl=ttl, max_hold=ttl) as handle:
            blocked_until = time.monotonic() + 60.0
            while handle.held:
                time.sleep(0.01)
                assert time.monotonic() < blocked_until, "renewed for ever"
            await forever()
    async with connect().hold(key, timeout=60.0) as next_one:
        assert next_one.fence > handle.fence


def test_ten_minutes_bound_it_by_default(redis_url: str) -> None:
    assert asyncdlock.connect(redis_url, renew_in="thread")._max_hold == 600.0
    assert asyncdlock.connect(redis_url, renew_in="thread", max_hold=7.0)._max_hold == 7.0
    assert asyncdlock.connect(redis_url)._max_hold is None


@outside_the_loop
async def test_a_lease_that_is_lost_meanwhile_is_noticed_on_use_and_ends_the_body(
    threaded: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    lost = threaded._metrics.lost
    with pytest.raises(asyncdlock.LockLost) as caught:
        async with threaded.hold(key, ttl=ttl) as handle:
            await take_away(handle, threaded)
            blocked_until = time.monotonic() + 60.0
            while handle.held:  # the loop is blocked, and the clock of the lease would run on
                time.sleep(0.01)
                assert time.monotonic() < blocked_until, "nobody noticed"
            await forever()
    assert caught.value.key == key
    await until(lambda: threaded._metrics.lost == lost + 1)


class ConfirmsTooLate:
    """Stands before a backend: its answer to a renewal comes when the lease has run out."""

    def __init__(self, inner: Backend, deadline: Callable[[], float]) -> None:
        self._inner = inner
        self._deadline = deadline

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        states = await self._inner.renew(grants)
        while time.monotonic() < self._deadline():
            time.sleep(0.01)  # the thread does, not the client's loop
        return states


async def test_a_renewal_that_is_confirmed_too_late_is_a_loss_told_in_the_clients_own_loop(
    redis_url: str, key: str
) -> None:
    told: list[tuple[int, str | None]] = []
    async with asyncdlock.connect(
        redis_url, renew_in="thread", on_lost=lambda lost: told.append((threading.get_ident(), lost.key))
    ) as locks:
        locks._core.watchdog.renew_through(
            lambda inner: cast(Backend, ConfirmsTooLate(inner, lambda: handle.expires_at))
        )
        handle = await locks.acquire(key, ttl=1.0)
        async with asyncio.timeout(60.0):
            assert await handle.wait_lost()
        assert not handle.held
        assert told == [(threading.get_ident(), key)]


class InDoubtOnce:
    """Stands before a backend: whether its first renewal was carried out is not known."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._asked = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        if not self._asked:
            self._asked = True
            return [LeaseState.UNKNOWN] * len(grants)
        return await self._inner.renew(grants)


async def test_a_renewal_that_comes_late_or_is_in_doubt_is_logged_and_tried_again(
    redis_url: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncdlock.connect(redis_url, renew_in="thread") as locks:
        locks._core.watchdog.renew_through(lambda inner: cast(Backend, InDoubtOnce(inner)))
        handle = await locks.acquire(key, ttl=12.0)
        until_then = handle.expires_at
        assert isinstance(locks._backend, ThreadBackend)
        locks._backend.thread.post(time.sleep, 7.0)  # a third of the TTL, and more than a sixth too late
        await until(lambda: handle.expires_at > until_then)
        handle.check()
    for what in ("the event loop was blocked for", "the server did not confirm its renewal"):
        about = [vars(record)["key"] for record in caplog.records if what in record.message]
        assert about == [key]


@outside_the_loop
async def test_waiters_of_the_process_get_the_lock_after_a_blocked_holder(
    threaded: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    """Also where they share a place on the server, and the lease is passed on."""
    fences: list[int] = []

    async def hold(busy: float) -> None:
        async with threaded.hold(key, ttl=ttl, timeout=120.0) as handle:
            fences.append(handle.fence)
            await asyncio.sleep(0)
            time.sleep(busy)
            handle.check()

    await asyncio.gather(*(hold(1.5 * ttl if number == 0 else 0.0) for number in range(5)))
    assert len(fences) == 5
    assert fences == sorted(set(fences))


async def test_short_holdings_leave_nothing_in_the_thread(redis_url: str, key: str) -> None:
    async with asyncdlock.connect(redis_url, renew_in="thread") as locks:
        for _ in range(200):
            async with locks.hold(key, ttl=0.3):
                pass
        wheel = locks._core.watchdog._watchdog  # type: ignore[union-attr]
        await until(lambda: not any(wheel._buckets.values()))
        assert locks._core.watchdog.watched() == []


@outside_the_loop
async def test_closing_ends_the_thread(threaded: asyncdlock.LockClient, key: str, ttl: float) -> None:
    handle = await threaded.acquire(key, ttl=ttl)
    backend = threaded._backend
    assert isinstance(backend, ThreadBackend)
    ((loop, thread),) = backend.thread._running
    await threaded.aclose()
    assert not thread.is_alive()
    assert loop.is_closed()
    assert not handle.held
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await threaded.acquire(key)


@pytest.mark.faults
async def test_a_server_that_is_away_for_longer_than_the_lease_ends_the_body(
    redis_server: servers.RedisNode,
) -> None:
    async with asyncdlock.connect(f"redis://{redis_server.address}", renew_in="thread") as locks:
        with pytest.raises(asyncdlock.LockLost, match="ran out"):
            async with locks.hold("k", ttl=1.0):
                redis_server.pause()
                try:
                    await forever()
                finally:
                    redis_server.resume()


async def test_what_a_cancelled_release_fails_with_is_for_whoever_asks_again() -> None:
    server = Scripted()
    asked, go_on = threading.Event(), threading.Event()

    async def away(_: Claim) -> None:
        asked.set()
        await asyncio.to_thread(go_on.wait)
        raise BackendUnavailable("away")

    server.on_release = away
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    backend = ThreadBackend(server)
    claim = Claim("key", "owner", 1.0)
    release = asyncio.create_task(backend.release(claim))
    await until(asked.is_set)
    release.cancel()
    await asyncio.wait({release})
    go_on.set()
    with pytest.raises(BackendUnavailable, match="away"):
        await backend.release(claim)
    await backend.aclose()
    del release
    gc.collect()
    await asyncio.sleep(0)
    assert not complaints, "nobody fetched the answer of the first"
    assert server.owners("release") == ["owner"]


async def test_a_capability_that_is_found_missing_is_told() -> None:
    server = Scripted()
    backend = ThreadBackend(server)
    server.capabilities = replace(server.capabilities, push_wakeup=False)  # as behind a pooler
    assert not backend.capabilities.push_wakeup


async def test_where_it_cannot_be_done_it_is_refused() -> None:
    with pytest.raises(ValueError, match="memory:// lives in the event loop"):
        asyncdlock.connect("memory://", renew_in="thread")
    with pytest.raises(ValueError, match="renew_in must be 'loop' or 'thread', not 'process'"):
        asyncdlock.connect("redis://127.0.0.1:1", renew_in="process")  # type: ignore[arg-type]


_FORKING = """
import asyncio, asyncdlock, os, sys, time

async def main(url, key):
    locks = asyncdlock.connect(url, renew_in="thread")
    handle = await locks.acquire(key, ttl=2.0)
    child = os.fork()
    if child == 0:
        try:
            handle.check()
        except asyncdlock.LockLost as lost:
            print(lost, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(4.0)
    handle.check()
    await handle.renew()
    print(await handle.release())
    await locks.acquire(key)  # and leave without closing

asyncio.run(main(*sys.argv[1:]))
"""


@backends(that=lambda can: can.interprocess, only=lambda case: not case.options)
def test_a_fork_does_not_disturb_it_and_the_interpreter_exits(url: str, key: str) -> None:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, url, key], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said, released = done.stdout.splitlines()
    assert "forked from" in said
    assert released == "True"
    assert time.monotonic() - begun < 60.0
