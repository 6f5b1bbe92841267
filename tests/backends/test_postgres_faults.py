"""postgres:// when processes die or freeze, connections break and replies are lost."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from asyncdlock import AcquireTimeout, BackendError, Handle, LockClient, connect
from asyncdlock.backends.postgres import from_url
from harness import servers
from harness.faults.tcp_link import Link, Way, open_link
from harness.servers.catalogue import LockServer
from tests.backends.postgres_probe import claims, database
from tests.backends.support import claim, until

pytestmark = pytest.mark.faults

_WAITER = """
import asyncio, sys, asyncdlock
url, key, ttl, places, permits = sys.argv[1:]
async def main():
    async with asyncdlock.connect(url) as locks:
        def wait():
            if int(permits):
                return locks.semaphore(key, permits=int(permits)).acquire(ttl=float(ttl))
            return locks.acquire(key, ttl=float(ttl))
        await asyncio.gather(*(wait() for _ in range(int(places))))
        await asyncio.sleep(3600)
asyncio.run(main())
"""


@pytest.fixture
def url(installed: Callable[[str], LockServer]) -> str:
    return installed("postgres").url


@pytest.fixture
async def link(url: str) -> AsyncIterator[Link]:
    """Between a client and the session's PostgreSQL."""
    async with open_link(_address(url)) as link:
        yield link


def _address(url: str) -> str:
    return url.partition("@")[2].partition("/")[0]


def _by(link: Link, url: str) -> str:
    return url.replace(_address(url), link.address)


@asynccontextmanager
async def _waiting_process(
    url: str, key: str, *, ttl: float = 60.0, places: int = 1, permits: int = 0
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another program that waits for the lock."""
    before = len(await claims(url, key))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _WAITER, url, key, *map(str, (ttl, places, permits))),
        cwd=Path(__file__).parents[2],
    )
    try:
        await until(lambda: _claimed(url, key, before + places), "it waits")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _claimed(url: str, key: str, places: int) -> bool:
    return len(await claims(url, key)) == places


async def test_a_waiting_process_that_was_killed_costs_nothing(url: str, key: str) -> None:
    """Neither its patience nor its TTL: both are far longer than this test waits."""
    patient = f"{url}?patience=600"
    async with connect(patient) as one, connect(patient) as two:
        held = await one.acquire(key, ttl=60.0)
        async with _waiting_process(patient, key) as process:
            behind = asyncio.create_task(two.acquire(key, ttl=60.0))
            await until(lambda: _claimed(url, key, 3), "both wait")
            process.kill()
            await process.wait()
            await until(lambda: _connections(url, 2), "the server has noticed")
            assert await held.release()
            assert await (await asyncio.wait_for(behind, 20.0)).release()
    assert await claims(url, key) == []


async def _connections(url: str, most: int) -> bool:
    async with database(url) as connection:
        listening = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory'"
        return int(await connection.fetchval(listening)) <= most


async def test_a_waiting_process_that_is_frozen_is_passed_over(url: str, key: str) -> None:
    impatient = f"{url}?patience=0.5"
    async with connect(url) as one, connect(url) as two:
        held = await one.acquire(key, ttl=60.0)
        async with _waiting_process(impatient, key) as process:
            process.send_signal(signal.SIGSTOP)
            behind = asyncio.create_task(two.acquire(key, ttl=60.0))
            await until(lambda: _claimed(url, key, 3), "both wait")
            await asyncio.sleep(1.0)
            assert await held.release()
            mine = await asyncio.wait_for(behind, 20.0)
            # It lives after all, and queues again.
            process.send_signal(signal.SIGCONT)
            await until(lambda: _claimed(url, key, 2), "it waits again")
            assert await mine.release()
            await until(lambda: _claimed(url, key, 1), "it has the lock")


async def test_a_clock_that_was_set_back_keeps_no_frozen_process_alive(url: str, key: str) -> None:
    strict = f"{url}?local_queue=off&patience=0.5"
    async with connect(strict) as one, connect(strict) as two:
        held = await one.acquire(key, ttl=60.0)
        async with _waiting_process(strict, key, ttl=1.0) as process:
            process.send_signal(signal.SIGSTOP)
            async with database(url) as connection:  # what it said last was said ten minutes from now
                said = "UPDATE asyncdlock.waiters SET spoke_at = spoke_at + interval '10 min' WHERE key = $1"
                await connection.execute(said, key)
            behind = asyncio.create_task(two.acquire(key, ttl=60.0))
            await until(lambda: _claimed(url, key, 3), "both wait")
            assert await held.release()
            mine = await asyncio.wait_for(behind, 20.0)
            assert mine.fence == held.fence + 1


async def test_a_waiter_whose_connection_broke_queues_again(url: str, link: Link, key: str) -> None:
    async with connect(url) as one, connect(_by(link, url)) as two:
        held = await one.acquire(key, ttl=60.0)
        waiting = asyncio.create_task(two.acquire(key, ttl=60.0))
        await until(lambda: _claimed(url, key, 2), "it waits")
        link.break_off()
        await asyncio.sleep(0.5)
        assert await held.release()
        assert await (await asyncio.wait_for(waiting, 20.0)).release()


@pytest.mark.parametrize("someone_waits", [False, True])
async def test_a_release_whose_reply_was_lost_is_known_to_have_happened(
    url: str, link: Link, key: str, someone_waits: bool
) -> None:
    """Also when somebody else has the lock by then."""
    async with connect(url) as other, connect(_by(link, url)) as locks:
        held = await locks.acquire(key, ttl=60.0)
        behind = asyncio.create_task(other.acquire(key, ttl=60.0)) if someone_waits else None
        await until(lambda: _claimed(url, key, 1 + someone_waits), "who waits, waits")
        link.hold(Way.TO_CLIENT)
        releasing = asyncio.create_task(held.release())
        await until(lambda: _claimed(url, key, 0 + someone_waits), "it is given back")
        link.lose(Way.TO_CLIENT)
        link.mend()
        link.break_off()
        assert await releasing is True
        if behind is not None:
            assert await (await behind).release() is True


async def test_a_release_that_cannot_be_known_is_said_to_be_unknown(url: str, link: Link, key: str) -> None:
    """Two others had the lock since."""
    backend = from_url(_by(link, url))
    mine = claim(key)
    await backend.acquire(mine)
    link.hold(Way.TO_CLIENT)
    releasing = asyncio.create_task(backend.release(mine))
    await until(lambda: _claimed(url, key, 0), "it is given back")
    async with connect(url) as other:
        assert await (await other.acquire(key)).release()
        async with other.hold(key):
            link.lose(Way.TO_CLIENT)
            link.mend()
            link.break_off()
            with pytest.raises(BackendError) as unknown:
                await releasing
            assert not unknown.value.definite
            assert await backend.release(mine) is False
    await backend.aclose()


@pytest.mark.parametrize("wait", [False, True])
async def test_an_acquire_whose_reply_never_came_leaves_nothing(
    url: str, link: Link, key: str, wait: bool
) -> None:
    async with connect(url) as other, connect(_by(link, url)) as locks:
        assert await (await locks.acquire(f"{key}-0")).release()
        held = await other.acquire(key, ttl=60.0) if wait else None
        link.hold(Way.TO_CLIENT)
        asking = asyncio.create_task(locks.acquire(key, ttl=60.0, timeout=0.5))
        await until(lambda: _claimed(url, key, 1 + wait), "it was carried out")
        with pytest.raises(AcquireTimeout):
            await asking
        link.mend()
        await until(lambda: _claimed(url, key, 0 + wait), "nothing is left")
        if held is not None:
            assert await held.release()


async def test_a_request_that_was_given_up_is_not_carried_out_later(url: str, key: str) -> None:
    """The server's process for our connection stands still until we have given up and cleaned up."""
    async with connect(url, request_timeout=0.5) as locks:
        await until(lambda: _taken_once(locks, key), "it is connected")
        session = locks._backend._backend._wire._session  # type: ignore[attr-defined]
        process = psutil.Process(session.identity[0])
        process.suspend()
        try:
            with pytest.raises(BackendError) as late:
                await locks.acquire(key, ttl=60.0)
            assert not late.value.definite
            assert "no answer in time" in str(late.value)
            await until(lambda: not locks._core.cleanup.pending, "its release was carried out")
        finally:
            process.resume()
        await until(lambda: not process.is_running(), "the old connection is gone")
        assert await claims(url, key) == []


async def test_a_frozen_server_ends_nothing_and_extends_nothing(key: str) -> None:
    async with servers.postgres() as node, connect(node.url, request_timeout=1.0) as locks:
        await until(lambda: _taken_once(locks, key), "it is connected")
        held = await locks.acquire(key, ttl=60.0)
        node.pause()
        left = held.remaining()
        with pytest.raises(BackendError):
            await held.renew()
        assert held.held
        assert held.remaining() < left
        with pytest.raises(BackendError):
            await locks.acquire(f"{key}-2", ttl=60.0)
        node.resume()
        await until(lambda: _claimed(node.url, f"{key}-2", 0), "what was sent meanwhile is undone")
        await held.renew()
        assert await held.release() is True
        handle = await locks.acquire(f"{key}-2", timeout=10.0)
        assert await handle.release()


async def test_a_crash_of_one_server_process_is_survived(key: str) -> None:
    """kill -9 of a session's process: PostgreSQL ends all sessions and recovers."""
    async with servers.postgres() as node, connect(node.url) as one, connect(node.url) as two:
        held = await one.acquire(key, ttl=60.0)
        waiting = asyncio.create_task(two.acquire(key, ttl=60.0))
        await until(lambda: _claimed(node.url, key, 2), "it waits")
        for process in node._family():
            if "asyncdlock" in " ".join(process.cmdline()) or "idle" in " ".join(process.cmdline()):
                process.kill()
                break
        else:
            pytest.fail("no session was found")
        await held.renew()
        assert not waiting.done()
        assert await held.release() is True
        assert await (await asyncio.wait_for(waiting, 30.0)).release()


@pytest.mark.parametrize("permits", [0, 1])
async def test_a_process_that_died_with_its_server_costs_the_others_one_lease(key: str, permits: int) -> None:
    """However many places it had: who was silent when the server came back is given time to speak again."""
    async with servers.postgres() as node:
        url = f"{node.url}?local_queue=off"
        async with connect(url) as one, connect(url) as two:
            held = await one.acquire(key, ttl=60.0)
            async with _waiting_process(url, key, ttl=1.0, places=5, permits=permits) as process:
                behind = asyncio.create_task(two.acquire(key, ttl=60.0))
                await until(lambda: _claimed(url, key, 7), "all wait")
                process.kill()
                await process.wait()
                node.kill()
                await node.start()
                while not await _given_back(held):
                    await asyncio.sleep(0.05)
                mine = await behind
                # The next fence went to the process that is dead, in vain.
                assert mine.fence == held.fence + 2
                await mine.release()


async def _taken_once(locks: LockClient, key: str) -> bool:
    """To connect, and to make the tables, may take longer than the time-out that a test is about."""
    try:
        return await (await locks.acquire(key)).release() and not locks._core.cleanup.pending
    except BackendError:
        return False


async def _given_back(handle: Handle) -> bool:
    try:
        return await handle.release()
    except BackendError:
        return False
