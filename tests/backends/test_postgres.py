"""postgres://: its tables, its queue, and the servers that it refuses."""

import asyncio
import itertools
import logging
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from asyncdlock import AcquireTimeout, BackendError, BackendUnavailable, LockClient, connect
from asyncdlock.backends.postgres import from_url
from asyncdlock.types import Claim, LeaseState, SharedClaim
from harness import servers
from harness.servers.catalogue import LockServer
from harness.servers.tls import make_certificates
from tests.backends.postgres_probe import claims, database
from tests.backends.support import claim, until

FIRST_VERSION = Path(__file__).with_name("postgres_schema_1.sql")
"""What the first version made, as it was."""


@pytest.fixture
def url(installed: Callable[[str], LockServer]) -> str:
    """The session's PostgreSQL: use keys of your own."""
    return installed("postgres").url


@pytest.fixture
def pooled(installed: Callable[[str], LockServer]) -> str:
    """The session's PostgreSQL behind PgBouncer."""
    return installed("pgbouncer").url


@pytest.fixture
async def own() -> AsyncIterator[servers.PostgresNode]:
    """A PostgreSQL of this test's own."""
    async with servers.postgres() as node:
        yield node


def sql(*options: str) -> str:
    """What `python -m asyncdlock.backends.postgres` prints."""
    command = [sys.executable, "-m", "asyncdlock.backends.postgres", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Requests


async def test_a_free_lock_costs_one_request_to_take_and_one_to_give_back(url: str, key: str) -> None:
    async with connect(url) as locks:
        for commands in range(2, 12, 2):
            assert await (await locks.acquire(key)).release()
            assert locks._backend.commands == commands


async def test_what_is_asked_at_once_goes_out_together(url: str, key: str) -> None:
    async with connect(url) as locks:
        handles = await asyncio.gather(*(locks.acquire(f"{key}-{number}") for number in range(300)))
        assert locks._backend.commands <= 3
        before = locks._backend.commands
        await locks._core.backend.renew([handle._holding.grant for handle in handles])
        assert locks._backend.commands == before + 1
        assert all(await asyncio.gather(*(handle.release() for handle in handles)))


async def test_batches_of_many_clients_on_the_same_keys_do_not_wait_for_each_other(
    own: servers.PostgresNode, key: str
) -> None:
    """Each takes its keys in another order; the server takes them in one."""
    keys = [f"{key}-{number}" for number in range(200)]

    async def work(locks: LockClient, order: list[str]) -> None:
        for _ in range(10):
            handles = await asyncio.gather(*(locks.try_acquire(one) for one in order))
            await asyncio.gather(*(handle.release() for handle in handles if handle is not None))

    clients = [connect(own.url, request_timeout=60.0) for _ in range(4)]
    orders = (keys, keys[::-1], keys[100:] + keys[:100], keys[99::-1] + keys[:99:-1])
    await asyncio.gather(*(work(one, order) for one, order in zip(clients, orders, strict=True)))
    for client in clients:
        await client.aclose()
    await _nothing_was_rolled_back(own.url, 80)


async def _nothing_was_rolled_back(url: str, transactions: int) -> None:
    """Of at least so many: a request that had to be repeated would have been."""

    async def counted() -> bool:
        async with database(url) as connection:
            question = "SELECT xact_commit, xact_rollback FROM pg_stat_database WHERE datname = 'postgres'"
            committed, rolled_back = await connection.fetchrow(question)
            assert rolled_back == 0
            return bool(committed >= transactions)

    await until(counted, "the statistics are in")


# The queue


async def test_waiters_are_served_in_the_order_in_which_they_asked(url: str, key: str) -> None:
    clients = [connect(url, local_queue=False) for _ in range(3)]
    held = await clients[0].acquire(key, ttl=60.0)
    served: list[int] = []

    async def wait(number: int) -> None:
        async with clients[number % 3].hold(key, ttl=60.0):
            served.append(number)

    tasks = []
    for number in range(30):
        tasks.append(asyncio.create_task(wait(number)))
        await until(lambda number=number: _queue_has(url, key, number + 2), "it has joined")  # type: ignore[misc]
    assert await held.release()
    await asyncio.gather(*tasks)
    assert served == list(range(30))
    for client in clients:
        await client.aclose()


async def test_two_hundred_tasks_of_a_process_are_served_in_the_order_of_their_calls(
    url: str, key: str
) -> None:
    """With hand-off within the process, as it is unless somebody says otherwise."""
    calls = itertools.count()
    served: list[int] = []
    async with connect(url) as locks:

        async def contend() -> None:
            for _ in range(5):
                number = next(calls)
                async with locks.hold(key, ttl=60.0):
                    served.append(number)

        await asyncio.gather(*(contend() for _ in range(200)))
    assert served == list(range(1000))


async def _queue_has(url: str, key: str, places: int) -> bool:
    return len(await claims(url, key)) == places


async def test_a_repeated_request_keeps_its_place_and_its_grant(url: str, key: str) -> None:
    backend = from_url(url)
    holder, waiter, other = claim(key), claim(key), claim(key)
    first = await backend._wire.send("acquire", holder, 1)
    again = await backend._wire.send("acquire", holder, 1)
    assert (first.outcome, again.outcome) == ("granted", "granted")
    assert first.last_fence == again.last_fence
    for one in (waiter, other, waiter, other):
        assert (await backend._wire.send("acquire", one, 1)).outcome == "waiting"
    assert await claims(url, key) == [holder.owner, waiter.owner, other.owner]
    for one in (waiter, holder, other):
        await backend.release(one)
    assert await claims(url, key) == []
    await backend.aclose()


async def test_a_wake_up_brings_the_grant_without_another_request(url: str, key: str) -> None:
    async with connect(url, patience=30.0) as one, connect(url, patience=30.0) as two:
        held = await one.acquire(key, ttl=60.0)
        waiting = asyncio.create_task(two.acquire(key, ttl=60.0))
        await until(lambda: _queue_has(url, key, 2), "it waits")
        before = two._backend.commands
        assert await held.release()
        handle = await asyncio.wait_for(waiting, 5.0)
        assert two._backend.commands == before
        assert await handle.release()


async def test_a_message_that_nobody_sent_on_our_behalf_grants_nothing(url: str, key: str) -> None:
    backend = from_url(url, patience=0.3)
    async with connect(url) as locks, locks.hold(key, ttl=60.0):
        mine = claim(key)
        waiting = asyncio.create_task(backend.acquire(mine))
        await until(lambda: _queue_has(url, key, 2), "it waits")
        backend._told("not-an-owner 17 0")
        # From before it joined, and from a clock far ahead: neither lease can be relied on.
        for moment in ("1.5", "99999999999.5"):
            backend._told(f"{mine.owner} 17 {moment}")
            await asyncio.sleep(0.1)
            assert not waiting.done()
    granted = await waiting
    assert granted.fence != 17
    assert await backend.release(mine)
    await backend.aclose()


async def test_a_lock_whose_holder_vanished_goes_to_the_first_who_waits(url: str, key: str) -> None:
    async with connect(url, local_queue=False) as one, connect(url, local_queue=False) as two:
        gone = await one.acquire(key, ttl=0.5, renew=False)
        first = asyncio.create_task(two.acquire(key, ttl=60.0))
        await until(lambda: _queue_has(url, key, 2), "it waits")
        assert await one.try_acquire(key) is None
        handle = await asyncio.wait_for(first, 30.0)
        assert handle.fence > gone.fence
        assert await handle.release()


@pytest.mark.parametrize("verb", ["acquire", "try"])
async def test_whoever_finds_a_lease_that_ended_stands_behind_those_who_wait(
    url: str, key: str, verb: str
) -> None:
    async with aclosing(from_url(url)) as one, aclosing(from_url(url)) as two:
        waiter, newcomer = claim(key), claim(key)
        assert (await one._wire.send("acquire", claim(key), 1)).outcome == "granted"
        assert (await two._wire.send("acquire", waiter, 1)).outcome == "waiting"
        async with database(url) as connection:
            await connection.execute(
                "UPDATE asyncdlock.locks SET expires_at = clock_timestamp() WHERE key = $1", key
            )
        assert (await one._wire.send(verb, newcomer, 1)).outcome in ("waiting", "held")
        assert (await claims(url, key))[0] == waiter.owner
        for left in (newcomer, waiter):
            await one.release(left)


async def test_a_repeated_request_of_a_reader_keeps_its_fence(url: str, key: str) -> None:
    async with aclosing(from_url(url)) as backend:
        reader = SharedClaim(*claim(key))
        first = await backend._wire.send("acquire", reader, 1)
        again = await backend._wire.send("acquire", reader, 1)
        assert (first.outcome, again.outcome) == ("granted", "granted")
        assert first.last_fence == again.last_fence
        assert await claims(url, key) == [reader.owner]
        assert (await backend._wire.send("release", reader)).outcome == "released"
        assert (await backend._wire.send("release again", reader)).outcome == "released"


async def test_a_writer_that_died_waiting_does_not_keep_readers_out(url: str, key: str) -> None:
    async with (
        aclosing(from_url(url, patience=3600.0)) as dead,
        connect(url) as one,
        connect(url) as two,
    ):
        first = await one.acquire(key, shared=True, ttl=60.0)
        assert (await dead._wire.send("acquire", claim(key), 1)).outcome == "waiting"
        assert await two.try_acquire(key, shared=True) is None
        assert dead._wire._session is not None
        dead._wire._session.abort()
        second = await two.acquire(key, shared=True, timeout=60.0)
        assert first.held
        assert await first.release()
        assert await second.release()


async def test_readers_behind_a_writer_that_gives_up_are_told(url: str, key: str) -> None:
    """They would not ask again for an hour."""
    async with connect(url, patience=3600.0) as one, connect(url, patience=3600.0) as two:
        first = await one.acquire(key, shared=True, ttl=3600.0)
        writer = asyncio.create_task(two.acquire(key, ttl=3600.0))
        await until(lambda: _queue_has(url, key, 2), "the writer waits")
        reader = asyncio.create_task(one.acquire(key, shared=True, ttl=3600.0))
        await until(lambda: _queue_has(url, key, 3), "the reader waits")
        writer.cancel()
        second = await asyncio.wait_for(reader, 60.0)
        assert first.held
        assert await first.release()
        assert await second.release()


@pytest.mark.parametrize("kind", [Claim, SharedClaim])
async def test_a_lease_that_has_ended_is_not_extended_though_nobody_took_the_lock(
    url: str, key: str, kind: Callable[..., Claim]
) -> None:
    async with aclosing(from_url(url)) as backend:
        mine = kind(*claim(key))
        grant = await backend.acquire(mine)
        assert await backend.renew([grant]) == [LeaseState.RENEWED]
        async with database(url) as connection:
            for table in ("locks", "holders"):
                await connection.execute(
                    f"UPDATE asyncdlock.{table} SET expires_at = clock_timestamp() WHERE key = $1", key
                )
        assert await backend.renew([grant]) == [LeaseState.LOST]
        assert await backend.release(mine) is False


@pytest.mark.parametrize("kind", [Claim, SharedClaim])
async def test_forcing_that_is_sent_again_spares_the_next_holder(
    url: str, key: str, kind: Callable[..., Claim]
) -> None:
    async with aclosing(from_url(url)) as backend:
        former, following = kind(*claim(key)), kind(*claim(key))
        before = await backend.acquire(former)
        seen = await backend._look(key)
        force = Claim(key, seen.grant, 0.0)
        assert (await backend._wire.send("force", force)).outcome == "released"
        after = await backend.acquire(following)
        assert after.fence > before.fence + 1
        for verb, outcome in (("force", "lost"), ("force again", "released")):
            assert (await backend._wire.send(verb, force)).outcome == outcome
            assert await claims(url, key) == [following.owner]
        assert await backend.release(following)


# What it promises


async def test_a_reserve_of_fences_is_one_block(url: str, key: str) -> None:
    backend = from_url(url, local_handoffs=16)
    first, second, third, fourth = (claim(key) for _ in range(4))
    grant = await backend.acquire(first, reserve=16)
    assert (grant.fence, grant.reserved) == (1, 16)
    assert await backend.release(first)
    assert (await backend.acquire(second, reserve=16)).fence == 18
    waiting = asyncio.create_task(backend.acquire(third, reserve=16))
    await until(lambda: _queue_has(url, key, 2), "it waits")
    assert await backend.release(second)
    grant = await waiting
    assert (grant.fence, grant.reserved) == (35, 16)
    assert await backend.release(third)
    assert (await backend.acquire(fourth)).fence == 52
    assert await backend.release(fourth)
    await backend.aclose()


@pytest.mark.parametrize("reserve", [0, 16])
async def test_a_repeated_request_keeps_its_fences_though_the_counter_was_raised(
    url: str, key: str, reserve: int
) -> None:
    """What the resource has seen, by which the counter was raised, belongs to somebody else."""
    async with aclosing(from_url(url)) as backend:
        mine, later = claim(key), claim(key)
        first = await backend.acquire(mine, reserve=reserve)
        await backend.raise_fence(key, above=1000)
        again = await backend.acquire(mine, reserve=reserve)
        assert (again.fence, again.reserved) == (first.fence, first.reserved)
        assert await backend.release(mine)
        assert (await backend.acquire(later)).fence == 1001
        assert await backend.release(later)


async def test_fences_that_are_used_up_are_said_to_be_so(url: str, key: str) -> None:
    """And whoever else is in the same batch is served."""
    async with connect(url) as locks:
        await locks.raise_fence(key, above=2**63 - 10)
        spent, fine = await asyncio.gather(
            locks.acquire(key), locks.acquire(f"{key}-2"), return_exceptions=True
        )
        assert isinstance(spent, BackendError)
        assert "used up" in str(spent)
        assert not isinstance(fine, BaseException)
        assert await fine.release()


async def test_a_grant_outlives_a_crash_whatever_the_servers_default_is(key: str) -> None:
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s", "bgwriter_delay": "10s"}
    async with servers.postgres(settings=settings) as node, connect(node.url) as locks:
        before = await locks.acquire(f"{key}-0", ttl=60.0)
        for number in range(5):
            handle = await locks.acquire(key, ttl=60.0)
            node.kill()
            await node.start()
            assert await claims(node.url, key) == [handle.owner], number
            assert await handle.release() is True
        assert await before.release()


async def test_a_renewal_outlives_a_crash(key: str) -> None:
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s", "bgwriter_delay": "10s"}
    async with servers.postgres(settings=settings) as node, connect(node.url) as locks:
        handle = await locks.acquire(key, ttl=60.0, renew=False)
        await asyncio.sleep(2.0)
        await handle.renew()
        node.kill()
        await node.start()
        async with database(node.url) as connection:
            left = await connection.fetchval(
                "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM asyncdlock.locks"
            )
        assert left >= handle.remaining()
        assert await handle.release() is True


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_the_isolation_that_others_want_does_not_touch_us(
    own: servers.PostgresNode, key: str, level: str
) -> None:
    async with database(own.url) as connection:
        await connection.execute(f"ALTER DATABASE postgres SET default_transaction_isolation = '{level}'")
    clients = [connect(own.url, local_queue=False) for _ in range(3)]
    fences: list[int] = []

    async def work(locks: LockClient) -> None:
        for _ in range(20):
            async with locks.hold(key) as handle:
                fences.append(handle.fence)

    await asyncio.gather(*(work(one) for one in clients))
    assert fences == sorted(set(fences))
    for client in clients:
        await client.aclose()
    await _nothing_was_rolled_back(own.url, 60)


# Tables


async def test_those_who_come_first_together_make_the_tables_once(
    own: servers.PostgresNode, key: str
) -> None:
    clients = [connect(own.url) for _ in range(12)]
    fences = await asyncio.gather(*(_one_section(locks, key) for locks in clients))
    assert len(set(fences)) == 12
    for client in clients:
        await client.aclose()


async def _one_section(locks: LockClient, key: str) -> int:
    async with locks.hold(key) as handle:
        return handle.fence


async def test_a_program_without_the_right_to_make_tables_is_told_what_to_do(
    own: servers.PostgresNode, key: str
) -> None:
    async with database(own.url) as connection:
        await connection.execute("CREATE ROLE app LOGIN")
    url = own.url.replace("postgres@", "app@")
    async with connect(url) as locks:
        with pytest.raises(BackendError, match=r"python -m asyncdlock\.backends\.postgres") as refused:
            await locks.acquire(key)
        assert refused.value.definite
        async with database(own.url) as connection:
            for _ in range(2):  # safe to run again
                await connection.execute(sql())
            await connection.execute(
                "GRANT USAGE ON SCHEMA asyncdlock TO app;"
                "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA asyncdlock TO app"
            )
        assert await (await locks.acquire(key)).release()


async def test_a_schema_of_ones_own(url: str, key: str) -> None:
    name = 'our "locks"; --'
    async with connect(url, schema=name) as ours, connect(url) as theirs:
        async with ours.hold(key), theirs.hold(key):
            async with database(url) as connection:
                tables = await connection.fetch(
                    "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", name
                )
    assert [row["tablename"] for row in tables] == ["holders", "locks", "waiters"]
    assert '"our ""locks""; --".locks' in sql("--schema", name)


async def test_tables_of_the_version_before_are_changed_while_its_clients_go_on(
    own: servers.PostgresNode, key: str
) -> None:
    """What was held and waited for stays so, and clients of both versions queue together."""
    async with database(own.url) as connection, connect(own.url, patience=60.0) as locks:

        async def old(verb: str, owner: str) -> tuple[str, int | None]:
            question = (
                "SELECT outcome, last_fence FROM asyncdlock.run_1"
                "(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[600.0], ARRAY[1], 600.0, NULL, NULL)"
            )
            row = await connection.fetchrow(question, verb, key, owner)
            return row["outcome"], row["last_fence"]

        await connection.execute(FIRST_VERSION.read_text("utf-8").replace("@schema@", "asyncdlock"))
        assert await old("acquire", "first") == ("granted", 1)
        assert await old("acquire", "second") == ("waiting", None)

        assert await locks.try_acquire(key) is None
        info = await locks.inspect(key)
        assert (info.owner, info.label, info.fence) == ("first", None, None)
        assert [waiter.owner for waiter in info.waiters] == ["second"]
        reader = asyncio.create_task(locks.acquire(key, shared=True, timeout=60.0))
        await until(lambda: _queue_has(own.url, key, 3), "the reader waits")
        assert await old("acquire", "third") == ("waiting", None)
        assert await old("renew", "first") == ("renewed", None)
        assert await old("release", "first") == ("released", None)
        assert await old("acquire", "second") == ("granted", 2)
        assert await old("release", "second") == ("released", None)
        handle = await reader
        assert handle.fence == 3
        assert await old("acquire", "third") == ("waiting", None)
        assert await handle.release()
        assert await old("acquire", "third") == ("granted", 4)
        assert await locks.force_release(key)
        assert await old("renew", "third") == ("lost", None)
        async with locks.hold(key) as last:
            assert last.fence > 5


async def test_tables_that_were_dropped_are_made_again(own: servers.PostgresNode, key: str) -> None:
    async with connect(own.url) as locks:
        assert await (await locks.acquire(key)).release()
        async with database(own.url) as connection:
            await connection.execute("DROP SCHEMA asyncdlock CASCADE")
        with pytest.raises(BackendError) as refused:
            await locks.acquire(key)
        assert refused.value.definite
        # Its fences begin anew, which this client knows better.
        async with locks.hold(key) as handle:
            assert handle.fence > 1


# Servers that cannot keep the promise


async def test_a_server_that_does_not_flush_is_refused(key: str) -> None:
    async with servers.postgres(settings={"fsync": "off"}) as node, connect(node.url) as locks:
        with pytest.raises(BackendError, match="fsync=off") as refused:
            await locks.acquire(key)
        assert refused.value.definite


async def test_a_table_that_a_crash_would_empty_is_refused(own: servers.PostgresNode, key: str) -> None:
    async with connect(own.url) as locks:
        assert await (await locks.acquire(key)).release()
    async with database(own.url) as connection:
        await connection.execute("ALTER TABLE asyncdlock.locks SET UNLOGGED")
    async with connect(own.url) as locks:
        with pytest.raises(BackendError, match="unlogged"):
            await locks.acquire(key)


async def test_a_database_without_unicode_is_refused(own: servers.PostgresNode, key: str) -> None:
    async with database(own.url) as connection:
        await connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    async with connect(own.url.removesuffix("postgres") + "latin") as locks:
        with pytest.raises(BackendError, match="LATIN1"):
            await locks.acquire(key)


async def test_a_server_that_only_reads_is_waited_for(own: servers.PostgresNode, key: str) -> None:
    """As one that is about to be promoted."""
    async with database(own.url) as connection:
        await connection.execute("ALTER ROLE postgres SET default_transaction_read_only = on")
        async with connect(own.url, request_timeout=0.5) as locks:
            with pytest.raises(BackendUnavailable, match="read-only") as refused:
                await locks.acquire(key)
            assert refused.value.definite
            await connection.execute("SET default_transaction_read_only = off")
            await connection.execute("ALTER ROLE postgres RESET default_transaction_read_only")
            assert await (await locks.acquire(key)).release()


async def test_a_wrong_database_or_nobody_there_is_one_sentence(url: str, key: str) -> None:
    async with connect(f"{url}x") as locks:
        with pytest.raises(BackendError, match="does not exist") as refused:
            await locks.acquire(key)
        assert refused.value.definite
    async with connect("postgres://127.0.0.1:1/postgres", request_timeout=0.3) as locks:
        with pytest.raises(BackendUnavailable) as unreachable:
            await locks.acquire(key)
        assert unreachable.value.definite


# A pooler in between


async def test_behind_a_pooler_it_asks_again_and_says_so(
    pooled: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "asyncdlock")
    async with connect(pooled) as one, connect(pooled) as two:
        held = await one.acquire(key, ttl=60.0)
        waiting = asyncio.create_task(two.acquire(key))
        await until(lambda: _queue_has(pooled, key, 2), "it waits")
        await until(lambda: not two.capabilities.push_wakeup, "it says so")
        assert "pooler" in caplog.text
        assert await held.release()
        assert await (await asyncio.wait_for(waiting, 5.0)).release()


async def test_a_pooler_that_was_announced_is_no_surprise(
    pooled: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "asyncdlock")
    async with connect(pooled, pooler=True) as locks, connect(pooled, pooler=True) as other:
        assert not locks.capabilities.push_wakeup
        async with locks.hold(key):
            with pytest.raises(AcquireTimeout):
                await other.acquire(key, timeout=0.3)
    assert caplog.text == ""


# Why it is no advisory lock


async def test_an_advisory_lock_behind_a_pooler_admits_two_and_stays_behind(pooled: str, key: str) -> None:
    """The demonstration of docs/backends/postgres.md: a lock of the session, where nobody has a session."""
    take = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
    async with database(pooled) as one, database(pooled) as two:
        assert await one.fetchval(take, key) is True
        # It got the very connection that the first one had used, and with it the lock.
        assert await two.fetchval(take, key) is True
    async with connect(pooled) as ours, connect(pooled) as others:
        async with ours.hold(key):
            assert await others.try_acquire(key) is None


# Encryption


async def test_a_server_is_asked_for_its_certificate(tmp_path: Path, key: str) -> None:
    certificates = make_certificates(tmp_path)
    async with servers.postgres() as node:
        for file in (certificates.cert, certificates.key):
            copy = node.data / file.name
            shutil.copyfile(file, copy)
            copy.chmod(0o600)
            shutil.chown(copy, node.data.stat().st_uid)
        node.settings |= {"ssl": "on", "ssl_cert_file": "cert.pem", "ssl_key_file": "key.pem"}
        try:
            await node.restart()
        except servers.ServerFailed:
            if "SSL is not supported by this build" not in node.log_tail():
                raise
            pytest.skip("this PostgreSQL was built without SSL: Debian's package postgresql has it")
        url = node.url.replace("postgres://", "postgress://")
        async with connect(url, ca_file=certificates.ca) as locks:
            async with locks.hold(key), database(node.url) as connection:
                encrypted = """SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                    WHERE application_name = 'asyncdlock'"""
                assert [row["ssl"] for row in await connection.fetch(encrypted)] == [True]
        async with connect(url, request_timeout=0.5) as strangers:
            with pytest.raises(BackendError, match="certificate verify failed"):
                await strangers.acquire(key)
