"""A task may enter its lock again; what it holds stays one lease, one fence, and can be lost once."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis

import asyncdlock
from asyncdlock import AcquireTimeout, Handle, LockClient, LockError, LockLost, ReentrantLock
from asyncdlock.types import Grant, LeaseState
from tests.cancellation.stepping import Moment, Step
from tests.contract.fixtures import until
from tests.core.scripted import Scripted, never

EXAMPLE = Path(__file__).parents[2] / "examples/reentrant.py"


@pytest.fixture
def server() -> Scripted:
    return Scripted()


@pytest.fixture
async def locks(server: Scripted) -> AsyncIterator[LockClient]:
    async with LockClient(server) as client:
        yield client


@pytest.fixture
async def redis_locks(redis_url: str) -> AsyncIterator[LockClient]:
    async with asyncdlock.connect(redis_url) as client:
        yield client


def verbs(server: Scripted) -> list[str]:
    return [verb for verb, _ in server.calls]


async def test_entering_again_is_local_and_the_outermost_exit_releases(
    locks: LockClient, server: Scripted
) -> None:
    lock = ReentrantLock(locks, "key")
    assert lock.depth == 0
    async with lock as outer:
        for _ in range(2):
            async with lock as inner:
                assert (inner, lock.depth) == (outer, 2)
                async with lock as innermost:
                    assert (innermost, lock.depth) == (outer, 3)
                assert lock.depth == 2
            assert lock.depth == 1
        assert outer.held
        assert verbs(server) == ["acquire"]
    assert lock.depth == 0
    assert verbs(server) == ["acquire", "release"]
    assert server.owners("release") == [outer.owner]


async def test_a_lock_can_be_entered_anew_once_it_was_left(locks: LockClient) -> None:
    lock = ReentrantLock(locks, "key")
    async with lock as first, lock:
        pass
    async with lock as second:
        assert second.fence > first.fence


async def test_the_server_keeps_the_lock_until_the_outermost_exit(
    redis_locks: LockClient, redis_url: str, key: str
) -> None:
    lock = ReentrantLock(redis_locks, key)
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        async with lock as handle:
            async with lock:
                async with lock:
                    pass
                assert await redis.get(key) == handle.owner
            assert await redis.get(key) == handle.owner
        assert await redis.get(key) is None


async def test_entering_again_does_not_extend_the_lease(locks: LockClient, server: Scripted) -> None:
    lock = ReentrantLock(locks, "key", ttl=60.0)
    async with lock as handle:
        until_then = handle.expires_at
        async with lock:
            await asyncio.sleep(0.01)
            async with lock:
                pass
        assert handle.expires_at == until_then
        assert "renew" not in verbs(server)


async def test_leaving_an_inner_block_does_not_stop_the_renewal(
    redis_locks: LockClient, redis_url: str, key: str
) -> None:
    lock = ReentrantLock(redis_locks, key, ttl=1.0)
    async with lock as handle:
        async with lock:
            pass
        # Only renewals carry a lease beyond what its first deadline was.
        first = handle.expires_at
        await until(lambda: time.monotonic() > first + 0.5)
        async with lock as inner:
            assert inner.held
        async with asyncdlock.connect(redis_url) as other:
            assert await other.try_acquire(key) is None


async def _lost_by_the_server(handle: Handle, server: Scripted) -> None:
    async def lost(grants: Sequence[Grant]) -> Sequence[LeaseState]:
        return [LeaseState.LOST] * len(grants)

    server.on_renew = lost
    with pytest.raises(LockLost):
        await handle.renew()


async def _ran_out(handle: Handle, server: Scripted) -> None:
    time.sleep(max(0.0, handle.expires_at - time.monotonic()) + 0.01)  # the loop stands still


async def _released(handle: Handle, server: Scripted) -> None:
    assert await handle.release()


@pytest.mark.parametrize("lose", [_lost_by_the_server, _ran_out, _released])
async def test_entering_again_after_the_loss_raises_and_acquires_nothing(
    locks: LockClient, server: Scripted, lose: Callable[[Handle, Scripted], Awaitable[None]]
) -> None:
    lock = ReentrantLock(locks, "key", ttl=0.3)
    entered = False
    with pytest.raises(LockLost):
        async with lock as handle:
            await lose(handle, server)
            async with lock:
                entered = True
    assert not entered
    assert verbs(server).count("acquire") == 1
    assert lock.depth == 0
    async with lock as again:
        assert again.fence > handle.fence


async def test_a_loss_that_was_caught_inside_stays_a_loss(locks: LockClient, server: Scripted) -> None:
    """Whoever swallows the first LockLost gets a second one, and never a fresh lock in its place."""
    lock = ReentrantLock(locks, "key", ttl=0.1)
    refused = 0
    with pytest.raises(LockLost):
        async with lock as handle:
            await _ran_out(handle, server)
            for _ in range(3):
                try:
                    async with lock:
                        pytest.fail("entered a lock that is lost")
                except LockLost:
                    refused += 1
            await asyncio.sleep(60.0)  # cancelled here: the lease's deadline ends the outermost block
    assert refused == 3
    assert verbs(server).count("acquire") == 1


async def test_a_task_is_outside_whatever_became_of_its_exit(locks: LockClient, server: Scripted) -> None:
    """Also when leaving raised or was cancelled: the next entry is a first one."""
    lock = ReentrantLock(locks, "key")
    with pytest.raises(LockLost):
        async with lock as lost:
            await _lost_by_the_server(lost, server)
    assert lock.depth == 0
    server.on_release = never
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), lock:
            pass
    server.on_release = None
    assert lock.depth == 0
    async with lock as again:
        assert again.fence == lost.fence + 2


async def test_leaving_an_inner_block_tells_of_a_loss_as_the_outermost_exit_does(
    locks: LockClient, server: Scripted
) -> None:
    lock = ReentrantLock(locks, "key", ttl=0.1)
    with pytest.raises(LockLost):
        async with lock as handle:
            async with lock:
                await _ran_out(handle, server)
            pytest.fail("went on as if nothing had happened")


async def test_the_bodys_own_error_passes_through_every_level(locks: LockClient, server: Scripted) -> None:
    lock = ReentrantLock(locks, "key")
    with pytest.raises(KeyError, match="mine"):
        async with lock, lock, lock:
            raise KeyError("mine")
    assert lock.depth == 0
    assert verbs(server) == ["acquire", "release"]


async def test_an_error_caught_between_the_levels_leaves_the_outer_one_inside(
    locks: LockClient, server: Scripted
) -> None:
    lock = ReentrantLock(locks, "key")
    async with lock as handle:
        with contextlib.suppress(KeyError):
            async with lock:
                raise KeyError
        assert lock.depth == 1
        assert handle.held
        assert verbs(server) == ["acquire"]


async def test_another_task_waits_its_turn(redis_locks: LockClient, key: str) -> None:
    lock = ReentrantLock(redis_locks, key)
    inside: list[str] = []

    async def turn(name: str) -> None:
        async with lock:
            for _ in range(2):
                async with lock:
                    inside.append(name)
                    await asyncio.sleep(0.005)
                    inside.append(name)

    async with asyncio.timeout(60.0):
        await asyncio.gather(*(turn(name) for name in "abcd"))
    assert [inside[start : start + 4] for start in range(0, 16, 4)] == [[name] * 4 for name in inside[::4]]


async def test_a_child_task_does_not_inherit_the_lock(redis_locks: LockClient, key: str) -> None:
    """It may outlive the block that started it; a holder that waits for it gets a timeout, not a hang."""
    lock = ReentrantLock(redis_locks, key, timeout=2.0)

    async def child() -> None:
        assert lock.depth == 0
        async with lock:
            pytest.fail("a child entered its parent's lock")

    async with lock:
        with pytest.raises(AcquireTimeout):
            await asyncio.create_task(child())
        assert lock.depth == 1


async def test_a_task_that_lost_its_lease_does_not_disturb_the_next_holder(
    redis_locks: LockClient, redis_url: str, key: str
) -> None:
    """Both are inside the same object for a while: each leaves what it entered."""
    lock = ReentrantLock(redis_locks, key)
    gone, leave = asyncio.Event(), asyncio.Event()

    async def loser() -> None:
        with pytest.raises(LockLost):
            async with lock as handle, lock:
                handle._holding.deadman = None  # a body that does not react to its cancellation
                handle._holding.lose("the test says so")
                async with Redis.from_url(redis_url) as redis:
                    await redis.delete(key)
                gone.set()
                await leave.wait()

    losing = asyncio.create_task(loser())
    await gone.wait()
    async with lock as handle:
        async with lock:
            leave.set()
            await losing
            assert lock.depth == 2
        handle.check()
        async with asyncdlock.connect(redis_url) as other:
            assert await other.try_acquire(key) is None


async def test_leaving_without_being_inside_is_an_error(locks: LockClient) -> None:
    lock = ReentrantLock(locks, "key")
    with pytest.raises(LockError, match="not inside"):
        await lock.__aexit__(None, None, None)
    async with lock as handle:
        with pytest.raises(LockError, match="not inside"):
            await asyncio.create_task(lock.__aexit__(None, None, None))
        assert handle.held


async def test_a_task_that_ends_inside_gives_the_lock_back(locks: LockClient, server: Scripted) -> None:
    lock = ReentrantLock(locks, "key")

    async def forget() -> Handle:
        await lock.__aenter__()
        return await lock.__aenter__()

    handle = await asyncio.create_task(forget())
    await until(lambda: server.owners("release") == [handle.owner])
    with pytest.raises(LockLost, match="has ended"):
        handle.check()


async def test_two_objects_of_one_key_are_two_holders(redis_locks: LockClient, key: str) -> None:
    async with ReentrantLock(redis_locks, key):
        with pytest.raises(AcquireTimeout):
            async with ReentrantLock(redis_locks, key, timeout=0.05):
                pytest.fail("two holders")


async def test_max_hold_ends_renewal_however_often_it_is_entered(redis_locks: LockClient, key: str) -> None:
    lock = ReentrantLock(redis_locks, key, ttl=0.3, max_hold=0.1)
    with pytest.raises(LockLost):
        async with asyncio.timeout(60.0), lock:
            while True:
                async with lock:
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("moment", Moment, ids=str)
@pytest.mark.parametrize("contended", [False, True], ids=["alone", "behind another"])
async def test_cancelled_at_every_suspension_it_leaves_nothing(
    redis_url: str, key: str, contended: bool, moment: Moment
) -> None:
    """Entering, entering again, leaving, leaving for good."""

    async def body(lock: ReentrantLock) -> None:
        async with lock:
            await asyncio.sleep(0)
            async with lock as handle:
                await asyncio.sleep(0)
                handle.check()
            await asyncio.sleep(0)

    async def turn_of(other: LockClient) -> None:
        async with other.hold(key):
            ahead.set()
            await asyncio.sleep(0.005)

    async with Redis.from_url(redis_url) as redis, asyncdlock.connect(redis_url) as other:
        for suspension in range(60):
            ahead = asyncio.Event()
            async with asyncdlock.connect(redis_url) as client, asyncio.TaskGroup() as group:
                if contended:
                    group.create_task(turn_of(other))
                    await ahead.wait()
                lock, step = ReentrantLock(client, key), Step(suspension, moment)
                await step(body(lock))
                assert not lock._holdings
            assert not await redis.exists(key), f"left on the server by suspension {suspension}"
            if not step.reached:
                return
    pytest.fail("not done after 60 suspensions")


@pytest.mark.parametrize("backend", ["memory", "redis"])
def test_the_example(backend: str, request: pytest.FixtureRequest) -> None:
    arguments = [] if backend == "memory" else [request.getfixturevalue("redis_url")]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert "depth 2" in said[1]
    assert "stopped in time: lock 'ledger:7'" in said[-1]
    assert "never reached" not in done.stdout
