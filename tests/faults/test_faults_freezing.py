"""Freezes at four levels: each stops what it says, no more, and for as long as it says."""

import asyncio
import signal
import sys
import time
from uuid import uuid4

import psutil
import pytest
from redis.exceptions import RedisError

import asyncdlock
from harness import servers
from harness.faults import (
    FaultJournal,
    Freezable,
    frozen_coroutine,
    frozen_process,
    frozen_server,
    kill_process,
    stall_event_loop,
)
from harness.load.clock import now

TTL = 0.5


async def test_a_journal_tells_name_start_end_and_details_on_the_runs_clock() -> None:
    journal = FaultJournal(now())
    with journal.fault("slow", who="A"):
        await asyncio.sleep(0.01)
        (going_on,) = journal.faults
    journal.moment("kill", who="B")
    slow, kill = journal.faults
    assert (going_on.name, going_on.until) == ("slow", None)
    assert slow.until is not None
    assert 0 <= slow.at < slow.until <= kill.at == kill.until
    assert (slow.details, kill.details) == ({"who": "A"}, {"who": "B"})


async def test_what_began_before_the_run_counts_from_its_start() -> None:
    journal = FaultJournal(now())
    with journal.fault("early"):
        await asyncio.sleep(0.01)
        journal.origin = now()
    (fault,) = journal.faults
    assert fault.at == 0
    assert fault.until is not None
    assert fault.until >= 0


async def test_a_fault_that_ends_by_an_error_has_an_end() -> None:
    journal = FaultJournal(now())
    with pytest.raises(RuntimeError), journal.fault("slow"):
        raise RuntimeError
    assert journal.faults[0].until is not None


async def test_a_frozen_coroutine_stands_still_and_others_go_on() -> None:
    journal = FaultJournal(now())
    steps = {"frozen": 0, "other": 0}

    async def count(name: str) -> int:
        while steps[name] < 50:
            steps[name] += 1
            await asyncio.sleep(0)
        return steps[name]

    target = Freezable(count("frozen"))

    async def run() -> int:
        return await target

    task = asyncio.create_task(run())
    while steps["frozen"] < 5:
        await asyncio.sleep(0)
    async with frozen_coroutine(journal, target):
        before = steps["frozen"]
        await count("other")
        assert steps["frozen"] == before
    assert await task == 50
    assert journal.faults[0].name == "coroutine frozen"


async def test_a_frozen_coroutine_gets_what_arrived_meanwhile_when_it_thaws() -> None:
    loop = asyncio.get_running_loop()
    good, bad = loop.create_future(), loop.create_future()

    async def wait_for_both() -> tuple[int, str]:
        value = await good
        try:
            await bad
        except ValueError as error:
            return value, str(error)
        raise AssertionError

    target = Freezable(wait_for_both())

    async def run() -> tuple[int, str]:
        return await target

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    for future, outcome in ((good, 1), (bad, ValueError("arrived"))):
        async with frozen_coroutine(FaultJournal(0), target):
            if isinstance(outcome, ValueError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
            await asyncio.sleep(0.01)
            assert not task.done()
        await asyncio.sleep(0)
    assert await task == (1, "arrived")


async def test_a_cancellation_reaches_a_frozen_coroutine_at_once() -> None:
    cleaned = False

    async def sleep() -> None:
        nonlocal cleaned
        try:
            await asyncio.sleep(60)
        finally:
            cleaned = True

    target = Freezable(sleep())

    async def run() -> None:
        await target

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    async with frozen_coroutine(FaultJournal(0), target):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned


async def test_a_frozen_coroutine_keeps_its_lock_and_a_frozen_event_loop_loses_it(redis_url: str) -> None:
    """The watchdog is another task of the same loop: it survives the first freeze, not the second."""
    journal = FaultJournal(now())
    key = uuid4().hex
    async with asyncdlock.connect(redis_url) as locks, asyncdlock.connect(redis_url) as others:
        handle = await locks.acquire(key, ttl=TTL)
        body = Freezable(asyncio.sleep(0))
        async with frozen_coroutine(journal, body):
            task = asyncio.ensure_future(_run(body))
            await asyncio.sleep(3 * TTL)
            assert await others.try_acquire(key, ttl=TTL) is None
            handle.check()
        await task
        stall_event_loop(journal, 3 * TTL)
        assert not handle.held
        taken = await others.try_acquire(key, ttl=TTL)
        assert taken is not None
        await taken.release()
    coroutine, loop = journal.faults
    assert coroutine.until is not None
    assert loop.until is not None
    assert loop.until - loop.at >= 3 * TTL * 1e9


async def _run(body: Freezable[None]) -> None:
    await body


async def _ticking() -> asyncio.subprocess.Process:
    """A process that prints a line every few milliseconds."""
    code = "import time\nwhile True:\n    print(time.monotonic(), flush=True)\n    time.sleep(0.005)"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )


async def test_a_frozen_process_does_nothing_until_it_is_continued() -> None:
    process = await _ticking()
    assert process.stdout is not None
    journal = FaultJournal(now())
    try:
        await process.stdout.readline()
        async with frozen_process(journal, process.pid, who="A"):
            assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
            began = time.monotonic()
            await asyncio.sleep(0.2)
            ended = time.monotonic()
        while (told := float(await process.stdout.readline())) < ended:
            assert told <= began, "it ticked while it was frozen"
    finally:
        process.kill()
        await process.wait()
    (fault,) = journal.faults
    assert (fault.name, fault.details["who"]) == ("process frozen", "A")


async def test_a_killed_process_is_gone_and_the_moment_is_noted() -> None:
    process = await _ticking()
    journal = FaultJournal(now())
    kill_process(journal, process.pid, who="A")
    assert await process.wait() == -signal.SIGKILL
    assert journal.faults[0].at == journal.faults[0].until
    with pytest.raises(ProcessLookupError):
        kill_process(journal, process.pid)


async def test_a_frozen_process_that_ends_meanwhile_is_no_error() -> None:
    process = await _ticking()
    async with frozen_process(FaultJournal(now()), process.pid):
        process.kill()
        await process.wait()


async def test_a_frozen_server_answers_when_it_is_continued(redis_server: servers.RedisNode) -> None:
    journal = FaultJournal(now())
    async with frozen_server(journal, redis_server):
        asked = asyncio.ensure_future(redis_server.command("PING"))
        await asyncio.sleep(0.2)
        assert not asked.done()
    assert await asked
    assert journal.faults[0].name == "server frozen"


async def test_a_server_that_dies_while_frozen_can_be_left(redis_server: servers.RedisNode) -> None:
    async with frozen_server(FaultJournal(now()), redis_server):
        redis_server.kill()
    with pytest.raises((RedisError, OSError)):
        await redis_server.command("PING")
