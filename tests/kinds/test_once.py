"""once(): of all replicas one runs a job for a tick, whatever their clocks say; a missed tick is told."""

import asyncio
import json
import math
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import asyncdlock
from asyncdlock.kinds.once import Tick, Ticks, begin
from tests.contract.cases import backends
from tests.contract.fixtures import Claims, Connect

REPLICA = Path(__file__).with_name("replica.py")
EVERY = 0.5


# The fences of the others come from their own log: once() refuses, as a test below shows.
remembering = backends(that=lambda can: can.once)


def skewed(seconds: float) -> Callable[[], float]:
    return lambda: time.time() + seconds


async def ticks_of(
    client: asyncdlock.LockClient, job: str, clock: Callable[[], float] = time.time, *, every: float = EVERY
) -> AsyncIterator[Tick]:
    async for tick in Ticks(client, job, every=every, ttl=10.0, max_hold=None, clock=clock):
        yield tick


@remembering
async def test_each_tick_runs_once_though_clocks_differ_by_more_than_the_job_takes(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    """Also by more than a tick: a replica that is late finds what was begun long ago."""
    begun: list[tuple[datetime, int]] = []
    enough = asyncio.Event()

    async def replica(client: asyncdlock.LockClient, skew: float) -> None:
        async for tick in ticks_of(client, key, skewed(skew)):
            async with tick as handle:
                begun.append((tick.at, handle.fence))
                if len(begun) >= 6:
                    enough.set()

    skews = (0.0, 0.2, -0.3, 1.3, -0.8)
    replicas = [asyncio.create_task(replica(connect(), skew)) for skew in skews]
    async with asyncio.timeout(120.0):
        await asyncio.wait([*replicas, asyncio.create_task(enough.wait())], return_when="FIRST_COMPLETED")
        await asyncio.sleep(max(skews) - min(skews))  # the last one is late for what the first has begun
    for task in replicas:
        task.cancel()
    await asyncio.wait(replicas)
    assert all(task.cancelled() for task in replicas)
    ran = Counter(at for at, _ in begun)
    assert set(ran.values()) == {1}
    assert [at for at, _ in sorted(begun)] == [at for at, _ in sorted(begun, key=lambda one: one[1])]


@remembering
async def test_a_replica_that_is_late_does_not_run_what_was_run_and_given_back(
    locks: asyncdlock.LockClient, connect: Connect, key: str, claims: Claims
) -> None:
    at = time.time() // 1
    tick = await locks.once_per(key, at)
    assert tick is not None
    async with tick:
        pass
    other = connect()
    assert await other.once_per(key, at, timeout=30.0) is None
    assert await other.once_per(key, at - 3600, timeout=30.0) is None, "nor an earlier one"
    later = await other.once_per(key, datetime.fromtimestamp(at + 1, UTC), timeout=30.0)
    assert later is not None
    assert later.fence > tick.fence
    assert (later.at.timestamp(), later.previous) == (at + 1, datetime.fromtimestamp(at, UTC))
    async with later:
        pass
    assert await claims() == []


@remembering
async def test_the_tick_of_one_that_failed_or_was_cut_off_is_not_run_again(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    at = time.time() // 1
    tick = await locks.once_per(key, at)
    assert tick is not None
    with pytest.raises(ValueError, match="the job failed"):
        async with tick:
            raise ValueError("the job failed")
    assert await connect().once_per(key, at, timeout=30.0) is None


@remembering
async def test_of_many_at_once_one_begins_the_tick(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    clients = [locks, connect(), connect()]
    ran: list[int] = []

    async def replica(client: asyncdlock.LockClient) -> None:
        tick = await client.once_per(key, 1_800_000_000, timeout=120.0)
        if tick is not None:
            async with tick:
                ran.append(tick.fence)

    await asyncio.gather(*(replica(clients[number % 3]) for number in range(12)))
    assert len(ran) == 1


@remembering
async def test_missed_ticks_are_told(
    locks: asyncdlock.LockClient, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = await locks.once_per(key, (time.time() // EVERY - 4) * EVERY)
    assert first is not None
    assert (first.previous, first.missed) == (None, 0)
    async with first:
        pass
    async with asyncio.timeout(60.0):
        tick = await anext(ticks_of(locks, key))
    assert tick.previous == first.at
    assert tick.missed == round((tick.at - first.at).total_seconds() / EVERY) - 1 >= 4
    assert f"{tick.missed} ticks of {key!r} were missed" in caplog.text
    async with tick:
        pass


@pytest.mark.parametrize(
    ("at", "then", "every"),
    [
        (1.8e9, 1.8e9 + 3600, math.inf),
        (1.8e9 + 0.2, 1.8e9 + 0.3, math.inf),
        (2e9, 2e9 + 1 / 3, 1 / 3),
    ],
    ids=["seconds", "tenths", "thirds"],
)
@remembering
async def test_the_tick_before_is_told_exactly_however_many_came_too_late_for_it(
    locks: asyncdlock.LockClient, key: str, at: float, then: float, every: float
) -> None:
    """Each of them counts the fence up, and with local hand-off by as many as it may hand on."""

    async def begun(tick: float) -> Tick | None:
        return await begin(locks, key, tick, ttl=10.0, timeout=None, max_hold=None, every=every)

    first = await begun(at)
    assert first is not None
    async with first:
        pass
    for _ in range(20):
        assert await begun(at) is None
    second = await begun(then)
    assert second is not None
    async with second:
        assert (second.previous, second.missed) == (first.at, 0)


@remembering
async def test_a_job_that_takes_longer_than_a_tick_delays_the_next_and_skips_the_rest(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    ticks = ticks_of(locks, key)
    async with asyncio.timeout(60.0):
        async with await anext(ticks) as running:
            waiting = asyncio.ensure_future(anext(ticks_of(connect(), key)))
            await asyncio.sleep(2.2 * EVERY)
            running.check()
            assert not waiting.done()
        async with await waiting as handle:
            assert handle.fence > running.fence
    tick = waiting.result()
    assert tick.missed >= 1


@remembering
async def test_a_clock_that_is_far_ahead_is_told(
    locks: asyncdlock.LockClient, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = await locks.once_per(key, time.time() + 3600)
    assert ahead is not None
    async with ahead:
        pass
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5 * EVERY):
            await anext(ticks_of(locks, key))
    assert "before its time: a clock is ahead" in caplog.text


async def test_replicas_in_processes_of_their_own(redis_url: str, key: str) -> None:
    """Each with a clock of its own, and a job shorter than what their clocks differ by."""
    until = time.time() + 6.0
    programs = [
        await asyncio.create_subprocess_exec(
            sys.executable, REPLICA, redis_url, key, str(skew), str(until), stdout=asyncio.subprocess.PIPE
        )
        for skew in (0.0, 0.4, -0.3)
    ]
    outputs = [(await asyncio.wait_for(program.communicate(), 120.0))[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0, 0]
    ran = Counter(at for output in outputs for at in json.loads(output))
    assert set(ran.values()) == {1}
    assert len(ran) >= 2


async def test_a_backend_without_a_memory_refuses(locks: asyncdlock.LockClient, key: str) -> None:
    if locks.capabilities.fence_floor:
        async with await anext(aiter(locks.once(key, every=0.5))):
            pass
        return
    with pytest.raises(asyncdlock.LockError, match="remembers the last tick"):
        locks.once(key, every="1s")
    with pytest.raises(asyncdlock.LockError, match="remembers the last tick"):
        await locks.once_per(key, time.time())


async def test_what_is_no_time_is_refused() -> None:
    async with asyncdlock.connect("memory://once") as locks:
        every: object
        for every in ("", "soon", "0s", "10ms", 0, -1.0, True, float("nan"), float("inf"), None):
            with pytest.raises(ValueError, match=r"every|duration|longer"):
                locks.once("job", every=every)  # type: ignore[arg-type]
        for length in ("500ms", "1h", "1d", 60, 0.5):
            locks.once("job", every=length)
        tick: object
        for tick in (datetime.now(), "today", True, 0, -1, float("nan"), 2**40):  # noqa: DTZ005
            with pytest.raises(ValueError, match="tick"):
                await locks.once_per("job", tick)  # type: ignore[arg-type]


async def test_a_tick_is_not_passed_over() -> None:
    async with asyncdlock.connect("memory://once") as locks:
        ticks = locks.once("unused", every=0.2)
        await anext(ticks)
        with pytest.raises(asyncdlock.LockError, match="was not used"):
            await anext(ticks)


@remembering
async def test_a_tick_whose_lease_is_lost_ends_its_body(
    locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    tick = await locks.once_per(key, time.time(), ttl=ttl)
    assert tick is not None
    with pytest.raises(asyncdlock.LockLost):
        async with tick as handle:
            assert await locks._backend.release(handle._holding.grant.claim)
            await asyncio.sleep(60.0)
