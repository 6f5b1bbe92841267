"""`zookeeper://`: how many sessions a client opens, when it gives them back, and what a refusal costs."""

import asyncio
import contextlib
import signal
import struct
import sys
import time
from itertools import pairwise

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import asyncdlock
from asyncdlock import BackendError, BackendUnavailable, LeaseState
from asyncdlock.backends.zookeeper import ZooKeeperBackend, sessions
from asyncdlock.backends.zookeeper.place import Place
from asyncdlock.backends.zookeeper.renewal import _Asking
from asyncdlock.backends.zookeeper.session import Ensemble, Session
from asyncdlock.backends.zookeeper.sessions import session_timeout
from asyncdlock.backends.zookeeper.wire import Tally, Wire
from harness import servers
from tests.backends.support import claim, until
from tests.backends.zookeeper_probe import opened, queue_of
from tests.schedules.loop import fresh_loop, virtual_time

_PONG = struct.pack("!iiqi", 16, -2, 0, 0)
SERVER_LIMIT = 60  # connections from one address, unless maxClientCnxns says otherwise


async def connections(ensemble: servers.ZooKeeperEnsemble) -> int:
    """How many the server has, without the one that asks."""
    reader, writer = await asyncio.open_connection(ensemble[0].host, ensemble[0].port)
    try:
        writer.write(b"cons")
        return sum(line.startswith(b" /") for line in (await reader.read()).splitlines()) - 1
    finally:
        writer.close()


# How many


def test_few_sessions_serve_all_ttls_and_none_is_much_longer_than_asked() -> None:
    ttls = [number / 100 for number in range(20, 6001)]
    timeouts = {ttl: session_timeout(ttl) for ttl in ttls}
    assert all(ttl <= timeout <= ttl * 1.34 for ttl, timeout in timeouts.items())
    assert len(set(timeouts.values())) < SERVER_LIMIT / 2
    for usual in (0.2, 0.5, 1.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0):
        assert session_timeout(usual) == usual


async def test_a_program_that_computes_its_ttls_stays_within_the_servers_limit(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str
) -> None:
    """As many different ones, held at the same time, as a default server takes connections, and more."""
    async with opened(zookeeper_server.url) as backend:
        claims = [claim(f"{key}-{number}", 10.0 + number / 5) for number in range(2 * SERVER_LIMIT)]
        for mine in claims:
            await backend.acquire(mine)
        assert await connections(zookeeper_server) < SERVER_LIMIT / 2
        assert all(await asyncio.gather(*map(backend.release, claims)))


async def test_ttls_below_what_the_server_allows_share_one_session(key: str) -> None:
    async with servers.zookeeper(tick_ms=2000) as ensemble, opened(ensemble.url) as backend:
        claims = [claim(f"{key}-{number}", 0.5 + number / 4) for number in range(14)]  # up to 3.75 s
        for mine in claims:
            await backend.acquire(mine)
        assert await connections(ensemble) == 1
        await asyncio.gather(*map(backend.release, claims))


async def test_a_session_that_nobody_uses_is_given_back(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IDLE", 0.5)
    async with opened(zookeeper_server.url) as backend:
        held = await backend.acquire(claim(key, 1.0))
        for ttl in (2.0, 3.0, 4.0):
            mine = claim(f"{key}-{ttl}", ttl)
            await backend.acquire(mine)
            await backend.release(mine)

        async def only_the_held_one() -> bool:
            assert await backend.renew([held])
            return await connections(zookeeper_server) == 1

        await until(only_the_held_one, "the idle sessions end")
        assert await backend.release(held.claim)
        await until(lambda: _no_connection(zookeeper_server), "the last one ends")
        again = claim(key, 2.0)
        await backend.acquire(again)
        assert await backend.release(again)


class _Heard(asyncio.Transport):
    """A follower's end of a connection: when it heard of the client. It answers every ping."""

    def __init__(self) -> None:
        super().__init__()
        self.wire: Wire | None = None
        self.at: list[float] = []

    def write(self, data: object) -> None:
        self.at.append(time.monotonic())
        assert self.wire is not None
        asyncio.get_running_loop().call_later(0.001, self.wire.data_received, _PONG)

    def abort(self) -> None:
        assert self.wire is not None
        asyncio.get_running_loop().call_soon(self.wire.connection_lost, None)


def test_a_follower_hears_of_a_session_ten_times_in_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session ends a timeout after the last word that its follower has passed on, not after the answer.

    So the time between two words is what a client of a follower that is cut off may believe too long.
    """
    heard = _Heard()

    async def answered(session: Session, host: object) -> Wire:
        heard.wire = wire = Wire(
            session._tally,
            on_event=session._on_event,
            on_expired=session._on_expired,
            on_lost=session._on_lost,
        )
        wire.connection_made(heard)
        session.id = 1
        return wire

    async def idle() -> None:
        session = Session(Ensemble([("follower", 2181)], 5.0), 6.0, Tally())
        await session.wire()
        await asyncio.sleep(60.0)
        await session.aclose()

    monkeypatch.setattr(Session, "_open", answered)
    with virtual_time(), fresh_loop() as loop:
        loop.run_until_complete(idle())
    assert len(heard.at) >= 100
    assert max(later - earlier for earlier, later in pairwise(heard.at)) <= 6.0 / 10 + 0.01


async def _no_connection(ensemble: servers.ZooKeeperEnsemble) -> bool:
    return await connections(ensemble) == 0


async def test_a_server_that_takes_no_more_connections_is_named_as_such(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str
) -> None:
    node = zookeeper_server[0]
    others: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        while len(others) <= SERVER_LIMIT or not others[-1][0].at_eof():
            try:
                others.append(await asyncio.open_connection(node.host, node.port))
            except OSError:
                break  # closed before it was open
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(others[-1][0].read(), 0.05 if len(others) > SERVER_LIMIT else 0.001)
            assert len(others) < 3 * SERVER_LIMIT
        async with opened(zookeeper_server.url, connect_timeout=0.5) as backend:
            with pytest.raises(BackendUnavailable, match="maxClientCnxns") as caught:
                await backend.acquire(claim(key))
            assert caught.value.definite
    finally:
        for _, writer in others:
            writer.close()


# Refusals


@pytest.fixture
def closed_root(zookeeper_url: str, kazoo: KazooClient, key: str) -> str:
    """A path below which only somebody else may create anything."""
    acl = make_digest_acl("somebody", "else", all=True)
    kazoo.create(f"/{key}", acl=[acl])
    return f"{zookeeper_url}/{key}"


async def test_a_user_who_may_not_create_the_locks_is_told_at_once(closed_root: str) -> None:
    locks = asyncdlock.connect(closed_root)
    with pytest.raises(BackendError, match="check the URL's password") as caught:
        await locks.acquire("k")
    assert caught.value.definite
    assert locks._backend.commands <= 10
    sent = locks._backend.commands
    await locks.aclose()
    # Nothing was left behind, so that there is nothing to give back; one request ends the session.
    assert locks._backend.commands - sent <= 1


async def test_a_user_who_may_not_join_a_queue_is_told_at_once(zookeeper_url: str, key: str) -> None:
    hosts = zookeeper_url.removeprefix("zookeeper://")
    async with asyncdlock.connect(f"zookeeper://me:pass@{hosts}/{key}") as mine, mine.hold("k"):
        locks = asyncdlock.connect(f"zookeeper://{hosts}/{key}")
        with pytest.raises(BackendError, match="check the URL's password") as caught:
            await locks.acquire("k")
        assert caught.value.definite
        sent = locks._backend.commands
        await locks.aclose()
        assert locks._backend.commands - sent <= 1


# Tasks that start at once

_EAGER = """
import asyncio, sys
import asyncdlock

async def main():
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    async with asyncdlock.connect(sys.argv[1]) as locks, locks.hold(sys.argv[2], timeout=30.0):
        pass

asyncio.run(main())
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
async def test_eager_tasks_find_everything_that_they_use(zookeeper_url: str, key: str) -> None:
    """In a process of its own: what went wrong hung the whole event loop."""
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", _EAGER, zookeeper_url, key)
    try:
        assert await asyncio.wait_for(program.wait(), 60.0) == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


# Waiters that die

_WAITER = """
import asyncio, sys
import asyncdlock

async def main():
    async with asyncdlock.connect(sys.argv[1]) as locks:
        await locks.acquire(sys.argv[2], ttl=float(sys.argv[3]))

asyncio.run(main())
"""


async def test_a_killed_waiter_holds_up_the_others_for_its_own_ttl_at_most(
    zookeeper_url: str, kazoo: KazooClient, key: str
) -> None:
    """Counted from its death, whether or not it is its turn; those behind may have far longer TTLs."""
    async with opened(zookeeper_url) as backend:
        held, behind = claim(key, 60.0), claim(key, 60.0)
        await backend.acquire(held)
        waiter = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _WAITER, zookeeper_url, key, "2.0"
        )
        try:
            await until(lambda: len(queue_of(kazoo, key)) == 2, "the waiter queues")
            waiting = asyncio.create_task(backend.acquire(behind))
            await until(lambda: len(queue_of(kazoo, key)) == 3, "another one queues behind it")
            waiter.send_signal(signal.SIGKILL)
            await waiter.wait()
            await until(lambda: len(queue_of(kazoo, key)) == 2, "the dead waiter's place goes")
            assert not waiting.done()
            await backend.release(held)
            await waiting
        finally:
            if waiter.returncode is None:
                waiter.kill()
                await waiter.wait()


# What a release can know


async def test_a_release_that_failed_is_found_out_by_the_next_one(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str
) -> None:
    """The delete was carried out, its reply was lost, and the server stays away for a while."""
    async with opened(zookeeper_server.url, connect_timeout=0.3) as backend:
        mine = claim(key, 30.0)
        await backend.acquire(mine)
        await _release_unanswered(backend, zookeeper_server, mine)
        assert await backend.release(mine)


async def _release_unanswered(
    backend: ZooKeeperBackend, ensemble: servers.ZooKeeperEnsemble, mine: asyncdlock.types.Claim
) -> None:
    """Cancel a release after its delete was carried out and before its reply was read."""
    commands = backend.commands
    releasing = asyncio.create_task(backend.release(mine))
    while backend.commands == commands:
        await asyncio.sleep(0)
    releasing.cancel()
    await asyncio.wait([releasing])
    assert releasing.cancelled()


# Renewals


def test_what_was_given_back_before_the_answer_came_is_lost(key: str) -> None:
    """The moment that the next test meets by chance."""
    assert _Asking("/locks").state_of(Place(claim(key), "")) is LeaseState.LOST


async def test_a_lock_that_is_given_back_during_a_renewal_does_not_spoil_it_for_the_others(
    zookeeper_server: servers.ZooKeeperEnsemble, key: str
) -> None:
    async with opened(zookeeper_server.url) as backend:
        leaving, staying = [await backend.acquire(claim(f"{key}-{name}")) for name in ("leaving", "staying")]
        node = zookeeper_server[0]
        for _ in range(20):  # both answers must come at once, and in the right turn of the loop
            node.pause()
            renewing = asyncio.create_task(backend.renew([leaving, staying]))
            await asyncio.sleep(0)
            releasing = asyncio.create_task(backend.release(leaving.claim))
            await asyncio.sleep(0.02)
            node.resume()
            _, state = await renewing
            assert state is LeaseState.RENEWED
            await releasing
            leaving = await backend.acquire(claim(f"{key}-leaving"))
