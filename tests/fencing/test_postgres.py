"""Guards for PostgreSQL: a transaction cannot commit behind a newer fence, whatever driver it runs on."""

import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import psycopg.rows
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from asyncdlock.errors import LockError, StaleFence
from asyncdlock.fencing.marks import PostgresMarks
from asyncdlock.fencing.postgres import MIGRATION, guard, protection, refusal, write_row
from harness.servers.postgres_node import PostgresNode, postgres

TABLES = """
CREATE TABLE account (id text PRIMARY KEY, balance int NOT NULL DEFAULT 0);
CREATE TABLE ledger (number serial, id text, fence bigint);
CREATE TABLE "Odd {}% "":name" (id text PRIMARY KEY, "the :value" text, "the fence" bigint);
CREATE TABLE protected (id text PRIMARY KEY, body text);
CREATE TABLE owned (id int PRIMARY KEY, body text);
"""
KEY_OF_OWNED = "'owned:' || id"
"""Which lock a row of that table belongs to."""

Transaction = Callable[[], AbstractAsyncContextManager[tuple[Any, Callable[..., Awaitable[Any]]]]]


@pytest.fixture(scope="module")
def node() -> Iterator[PostgresNode]:
    with asyncio.Runner() as runner:
        server = postgres()
        node = runner.run(server.__aenter__())
        try:
            runner.run(_prepare(node.url))
            yield node
        finally:
            runner.run(server.__aexit__(None, None, None))


async def _prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    for script in (MIGRATION, MIGRATION, TABLES, *[protection("protected")] * 2):
        await connection.execute(script)
    await connection.execute(protection("owned", KEY_OF_OWNED))
    await connection.close()


@pytest.fixture
def key() -> str:
    return f"account:{uuid4()}"


@pytest.fixture
async def direct(node: PostgresNode) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(node.url)
    yield connection
    await connection.close()


@pytest.fixture(params=["asyncpg", "psycopg", "sqlalchemy session", "sqlalchemy connection"])
async def transaction(request: pytest.FixtureRequest, node: PostgresNode) -> AsyncIterator[Transaction]:
    """`async with transaction() as (connection, execute):` on a connection of its own."""
    engine = create_async_engine(node.url.replace("postgres://", "postgresql+asyncpg://", 1))

    @asynccontextmanager
    async def begin() -> AsyncIterator[tuple[Any, Callable[..., Awaitable[Any]]]]:
        if request.param == "asyncpg":
            connection = await asyncpg.connect(node.url)
            try:
                async with connection.transaction():
                    yield connection, connection.execute
            finally:
                await connection.close()
        elif request.param == "psycopg":
            async with await psycopg.AsyncConnection.connect(node.url) as session, session.transaction():
                yield session, session.execute
        elif request.param == "sqlalchemy session":
            async with AsyncSession(engine) as orm, orm.begin():
                yield orm, lambda statement: orm.execute(text(statement))
        else:
            async with engine.begin() as core:
                yield core, lambda statement: core.execute(text(statement))

    yield begin
    await engine.dispose()


async def test_a_fresh_writer_wins_and_a_stale_one_loses(
    transaction: Transaction, direct: Any, key: str
) -> None:
    async with transaction() as (connection, execute):
        await guard(connection, key, 34)
        await execute(f"INSERT INTO account VALUES ('{key}', 34)")
    with pytest.raises(StaleFence) as refused:
        async with transaction() as (connection, execute):
            await guard(connection, key, 33)
            await execute(f"UPDATE account SET balance = 33 WHERE id = '{key}'")
    assert (refused.value.key, refused.value.seen, refused.value.got) == (key, 34, 33)
    async with transaction() as (connection, execute):
        await guard(connection, key, 34)  # the same holder, once more
        await execute(f"UPDATE account SET balance = balance + 1 WHERE id = '{key}'")
    assert await direct.fetchval("SELECT balance FROM account WHERE id = $1", key) == 35


async def test_whoever_is_newer_waits_for_the_transaction_in_progress(
    transaction: Transaction, direct: Any, key: str
) -> None:
    """33 is inside when 34 comes: were 34 let through, 33 would commit behind it."""
    await direct.execute("INSERT INTO account VALUES ($1, 0)", key)

    async def newer() -> None:
        async with transaction() as (connection, execute):
            await guard(connection, key, 34)
            await execute(f"UPDATE account SET balance = 34 WHERE id = '{key}'")

    async with transaction() as (connection, execute):
        await guard(connection, key, 33)
        overtaking = asyncio.create_task(newer())
        done, _ = await asyncio.wait({overtaking}, timeout=0.3)
        assert not done
        await execute(f"UPDATE account SET balance = 33 WHERE id = '{key}'")
    await overtaking
    assert await direct.fetchval("SELECT balance FROM account WHERE id = $1", key) == 34


async def test_a_transaction_that_rolls_back_raises_no_mark(
    transaction: Transaction, direct: Any, key: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with transaction() as (connection, _):
            await guard(connection, key, 34)
            raise ZeroDivisionError
    assert await direct.fetchval("SELECT fence FROM asyncdlock_fences WHERE key = $1", key) is None


async def test_a_guard_without_a_transaction_is_refused(node: PostgresNode, direct: Any, key: str) -> None:
    with pytest.raises(LockError, match="transaction"):
        await guard(direct, key, 34)
    async with await psycopg.AsyncConnection.connect(node.url, autocommit=True) as session:
        with pytest.raises(LockError, match="transaction"):
            await guard(session, key, 34)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_sqlalchemy_without_transactions_is_refused(node: PostgresNode, key: str, driver: str) -> None:
    """AUTOCOMMIT: each statement is a transaction of its own, whatever `begin()` seems to say."""
    url = node.url.replace("postgres://", f"postgresql+{driver}://", 1)
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.begin() as core:
        with pytest.raises(LockError, match="transaction"):
            await guard(core, key, 34)
    async with AsyncSession(engine) as orm, orm.begin():
        with pytest.raises(LockError, match="transaction"):
            await guard(orm, key, 34)
    await engine.dispose()


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """What `connection_class=` of asyncpg takes."""


class _Session(AsyncSession):
    """As SQLModel has one."""


async def test_classes_derived_from_the_drivers_are_taken_for_what_they_are(
    node: PostgresNode, key: str
) -> None:
    own = await asyncpg.connect(node.url, connection_class=_Connection)
    async with own.transaction():
        await guard(own, key, 34)
    await own.close()
    engine = create_async_engine(node.url.replace("postgres://", "postgresql+asyncpg://", 1))
    with pytest.raises(StaleFence):
        async with _Session(engine) as orm, orm.begin():
            await guard(orm, key, 33)
    await engine.dispose()


async def test_what_a_connection_makes_of_its_rows_is_its_own_affair(
    node: PostgresNode, direct: Any, key: str
) -> None:
    """An error behind the statement would deny a write that was stored."""
    await direct.execute("ALTER TABLE account ADD COLUMN IF NOT EXISTS fence bigint")
    await direct.execute("INSERT INTO account VALUES ($1, 0)", key)
    connection = await psycopg.AsyncConnection.connect(
        node.url, autocommit=True, row_factory=psycopg.rows.dict_row
    )
    async with connection:
        async with connection.transaction():
            await guard(connection, key, 34)
        await write_row(connection, "account", {"id": key}, {"balance": 34}, fence=34)
        with pytest.raises(StaleFence):
            await write_row(connection, "account", {"id": key}, {"balance": 33}, fence=33)
    assert await direct.fetchval("SELECT balance FROM account WHERE id = $1", key) == 34


async def test_a_database_without_the_function_is_told_where_it_comes_from(direct: Any, key: str) -> None:
    with pytest.raises(LockError, match=r"python -m asyncdlock\.fencing\.postgres"):
        async with direct.transaction():
            await direct.execute("SET LOCAL search_path = pg_catalog")
            await guard(direct, key, 34)


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_at_every_isolation_level_nobody_commits_behind_a_newer_fence(
    node: PostgresNode, direct: Any, key: str, isolation: Any
) -> None:
    """33 waits for 34, which commits: then it is stale, or its snapshot is; never does it go on."""
    await direct.execute("INSERT INTO account VALUES ($1, 0)", key)
    old = await asyncpg.connect(node.url)

    async def late() -> None:
        async with old.transaction(isolation=isolation):
            await guard(old, key, 33)
            await old.execute("UPDATE account SET balance = 33 WHERE id = $1", key)

    async with direct.transaction():
        await guard(direct, key, 34)
        overtaken = asyncio.create_task(late())
        await _until_somebody_waits(node)
        await direct.execute("UPDATE account SET balance = 34 WHERE id = $1", key)
    with pytest.raises((StaleFence, asyncpg.SerializationError)):
        await overtaken
    with pytest.raises(StaleFence):
        await late()
    assert await direct.fetchval("SELECT balance FROM account WHERE id = $1", key) == 34
    await old.close()


async def _until_somebody_waits(node: PostgresNode) -> None:
    looker = await asyncpg.connect(node.url)
    async with asyncio.timeout(60):
        while not await looker.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)
    await looker.close()


async def test_two_keys_in_opposite_order_are_a_deadlock_that_one_survives(
    node: PostgresNode, direct: Any, key: str
) -> None:
    other = await asyncpg.connect(node.url)
    both = asyncio.Barrier(2)

    async def write(connection: Any, first: str, second: str) -> None:
        async with connection.transaction():
            await guard(connection, first, 7)
            await both.wait()
            await guard(connection, second, 7)
            await connection.execute("INSERT INTO ledger (id, fence) VALUES ($1, 7)", key)

    a, b = f"{key} a", f"{key} b"
    outcome = await asyncio.gather(write(direct, a, b), write(other, b, a), return_exceptions=True)
    assert [type(one) for one in outcome if one] == [asyncpg.DeadlockDetectedError]
    assert await direct.fetchval("SELECT count(*) FROM ledger WHERE id = $1", key) == 1
    await other.close()


async def test_a_killed_writer_leaves_nothing_and_keeps_nobody_out(
    node: PostgresNode, direct: Any, key: str
) -> None:
    """kill -9 between the guard and the commit."""
    writer = subprocess.Popen(
        [sys.executable, "-c", _DYING_WRITER, node.url, key], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert await asyncio.to_thread(writer.stdout.readline) == "inside\n"
    newer = asyncio.create_task(_write_ledger(direct, key, 8))
    await _until_somebody_waits(node)
    writer.kill()
    await newer
    rows = await direct.fetch("SELECT fence FROM ledger WHERE id = $1", key)
    assert [row["fence"] for row in rows] == [8]
    writer.stdout.close()
    writer.wait()


_DYING_WRITER = """
import asyncio, sys
import asyncpg
from asyncdlock.fencing.postgres import guard

async def main(url, key):
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await guard(connection, key, 7)
        await connection.execute("INSERT INTO ledger (id, fence) VALUES ($1, 7)", key)
        print("inside", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def _write_ledger(connection: Any, key: str, fence: int) -> None:
    async with connection.transaction():
        await guard(connection, key, fence)
        await connection.execute("INSERT INTO ledger (id, fence) VALUES ($1, $2)", key, fence)


async def test_what_is_no_connection_is_refused(key: str) -> None:
    with pytest.raises(TypeError, match="asyncpg"):
        await guard(object(), key, 34)


async def test_sixty_four_writers_never_commit_backwards(node: PostgresNode, direct: Any, key: str) -> None:
    """Read from the store's own history: each writer appends a row under the guard's lock."""
    fences = list(range(1, 65))
    random.Random(7).shuffle(fences)
    pool = await asyncpg.create_pool(node.url, min_size=1, max_size=16)

    async def write(fence: int) -> None:
        with contextlib.suppress(StaleFence):
            async with pool.acquire() as connection, connection.transaction():
                await guard(connection, key, fence)
                await connection.execute("INSERT INTO ledger (id, fence) VALUES ($1, $2)", key, fence)

    await asyncio.gather(*map(write, fences))
    await pool.close()
    rows = await direct.fetch("SELECT fence FROM ledger WHERE id = $1 ORDER BY number", key)
    written = [row["fence"] for row in rows]
    assert written == sorted(set(written))
    assert written[-1] == 64


async def test_a_killed_server_has_forgotten_no_mark(key: str) -> None:
    async with postgres() as node:
        connection = await asyncpg.connect(node.url)
        await connection.execute(MIGRATION)
        async with connection.transaction():
            await guard(connection, key, 34)
        node.kill()
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await connection.close(timeout=5)
        await node.start()
        connection = await asyncpg.connect(node.url)
        with pytest.raises(StaleFence):
            async with connection.transaction():
                await guard(connection, key, 33)
        await connection.close()


class TestRow:
    """A row that carries its own fence."""

    TABLE = 'Odd {}% ":name'

    @pytest.fixture
    async def row(self, direct: Any) -> str:
        name = str(uuid4())
        await direct.execute('INSERT INTO "Odd {}% "":name" (id) VALUES ($1)', name)
        return name

    async def write(self, connection: Any, row: str, value: str, fence: int) -> None:
        await write_row(
            connection, self.TABLE, {"id": row}, {"the :value": value}, fence=fence, column="the fence"
        )

    async def test_it_is_written_once_for_each_fence_upwards(
        self, transaction: Transaction, direct: Any, row: str
    ) -> None:
        for fence in (33, 34):
            async with transaction() as (connection, _):
                await self.write(connection, row, f"{fence}", fence)
        for fence in (33, 34):
            with pytest.raises(StaleFence):
                async with transaction() as (connection, _):
                    await self.write(connection, row, "late", fence)
        found = await direct.fetchrow('SELECT * FROM "Odd {}% "":name" WHERE id = $1', row)
        assert tuple(found) == (row, "34", 34)

    async def test_a_row_that_is_not_there(self, direct: Any) -> None:
        with pytest.raises(LookupError):
            await self.write(direct, "nobody", "x", 1)


class TestProtectedTable:
    """A trigger that no writer can pass by."""

    async def test_nobody_writes_without_a_guard(self, direct: Any, key: str) -> None:
        for statement in (
            "INSERT INTO protected VALUES ('x', 'y')",
            "UPDATE protected SET body = 'x'",
            "DELETE FROM protected",
            "TRUNCATE protected",
        ):
            async with direct.transaction():
                await guard(direct, key, 34)
                await direct.execute("INSERT INTO protected VALUES ($1, '')", f"{key} {statement}")
            with pytest.raises(asyncpg.PostgresError) as refused:
                await direct.execute(statement)
            told = refusal(refused.value, key, 34)
            assert told is not None
            assert "asyncdlock_guard" in str(told)

    async def test_a_row_of_a_higher_fence_is_out_of_reach_for_other_locks_too(
        self, transaction: Transaction, key: str
    ) -> None:
        async with transaction() as (connection, execute):
            await guard(connection, key, 34)
            await execute(f"INSERT INTO protected VALUES ('{key}', 'by 34')")
            await execute(f"UPDATE protected SET body = 'by 34 again' WHERE id = '{key}'")
        for statement in ("UPDATE protected SET body = 'late'", "DELETE FROM protected"):
            with pytest.raises(Exception) as refused:
                async with transaction() as (connection, execute):
                    await guard(connection, f"another {key}", 33)
                    await execute(f"{statement} WHERE id = '{key}'")
            told = refusal(refused.value, key, 33)
            assert isinstance(told, StaleFence)
            assert told.seen == 34

    async def test_a_guard_that_was_rolled_back_lets_nothing_in(self, direct: Any, key: str) -> None:
        with pytest.raises(asyncpg.PostgresError, match="fenced"):
            async with direct.transaction():
                with contextlib.suppress(ZeroDivisionError):
                    async with direct.transaction():  # a savepoint
                        await guard(direct, key, 34)
                        raise ZeroDivisionError
                await direct.execute("INSERT INTO protected VALUES ($1, '')", key)

    async def test_two_locks_in_one_transaction_are_told_apart_or_refused(
        self, transaction: Transaction, key: str
    ) -> None:
        """Else a row would get the fence of another lock, which its own may not reach for years."""
        with pytest.raises(Exception) as refused:
            async with transaction() as (connection, execute):
                await guard(connection, f"{key} a", 5)
                await guard(connection, f"{key} b", 900)
                await execute(f"INSERT INTO protected VALUES ('{key}', '')")
        assert "several locks" in str(refusal(refused.value, key, 5))

    async def test_a_table_that_knows_whose_its_rows_are(self, transaction: Transaction, direct: Any) -> None:
        one, two = random.sample(range(2**31), 2)
        async with transaction() as (connection, execute):
            await guard(connection, f"owned:{one}", 5)
            await guard(connection, f"owned:{two}", 900)
            await execute(f"INSERT INTO owned VALUES ({one}, 'by 5'), ({two}, 'by 900')")
        rows = await direct.fetch("SELECT fence FROM owned WHERE id = ANY($1) ORDER BY fence", [one, two])
        assert [row["fence"] for row in rows] == [5, 900]
        async with transaction() as (connection, execute):
            await guard(connection, f"owned:{one}", 6)
            await execute(f"UPDATE owned SET body = 'by 6' WHERE id = {one}")
        for statement in (
            f"UPDATE owned SET body = 'not mine' WHERE id = {two}",
            f"UPDATE owned SET id = -{one} WHERE id = {one}",
            f"DELETE FROM owned WHERE id = {two}",
        ):
            with pytest.raises(Exception) as refused:
                async with transaction() as (connection, execute):
                    await guard(connection, f"owned:{one}", 1000)
                    await execute(statement)
            assert "call asyncdlock_guard" in str(refusal(refused.value, "", 1000))
        async with transaction() as (connection, execute):
            await guard(connection, f"owned:{one}", 1000)
            await execute(f"DELETE FROM owned WHERE id = {one}")
        assert await direct.fetchval("SELECT body FROM owned WHERE id = $1", two) == "by 900"

    async def test_a_setting_without_a_guard_lets_nobody_in(self, direct: Any, key: str) -> None:
        """Whoever claims a fence has to have the mark; with the fence of the mark it waits like a guard."""
        async with direct.transaction():
            await guard(direct, key, 34)
            await direct.execute("INSERT INTO protected VALUES ($1, 'by 34')", key)
        claim = "SELECT set_config('asyncdlock.guards', jsonb_build_object($1::text, $2::int)::text, true)"
        for fence in (33, 35):
            with pytest.raises(asyncpg.PostgresError, match="fenced"):
                async with direct.transaction():
                    await direct.execute(claim, key, fence)
                    await direct.execute("UPDATE protected SET body = 'claimed' WHERE id = $1", key)
        assert await direct.fetchval("SELECT body FROM protected WHERE id = $1", key) == "by 34"

    async def test_a_partition_is_no_way_around(self, direct: Any, key: str) -> None:
        await direct.execute("CREATE TABLE parted (id int, body text) PARTITION BY RANGE (id)")
        await direct.execute("CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (10)")
        await direct.execute(protection("parted"))
        async with direct.transaction():
            await guard(direct, key, 34)
            await direct.execute("INSERT INTO parted VALUES (1, 'by 34')")
        for statement in (
            "INSERT INTO part VALUES (2, '')",
            "UPDATE part SET body = 'late'",
            "DELETE FROM part",
            "TRUNCATE part",
            "TRUNCATE parted",
        ):
            with pytest.raises(asyncpg.PostgresError, match="fenced"):
                await direct.execute(statement)
        assert await direct.fetchval("SELECT body FROM parted") == "by 34"
        await direct.execute("DROP TABLE parted")

    async def test_the_setting_ends_with_its_transaction(self, direct: Any, key: str) -> None:
        async with direct.transaction():
            await guard(direct, key, 34)
        with pytest.raises(asyncpg.PostgresError, match="fenced"):
            await direct.execute("INSERT INTO protected VALUES ($1, '')", key)


async def test_marks_for_services_commit_with_what_the_endpoint_writes(node: PostgresNode, key: str) -> None:
    pool = await asyncpg.create_pool(node.url, min_size=1, max_size=2)
    marks = PostgresMarks(pool)
    async with marks.admit(key, 34) as connection:
        await connection.execute("INSERT INTO account VALUES ($1, 34)", key)
    with pytest.raises(ZeroDivisionError):
        async with marks.admit(key, 35) as connection:
            await connection.execute("UPDATE account SET balance = 35 WHERE id = $1", key)
            raise ZeroDivisionError
    assert await pool.fetchval("SELECT balance FROM account WHERE id = $1", key) == 34
    with pytest.raises(StaleFence):
        async with marks.admit(key, 33):
            raise AssertionError("not to be reached")
    await pool.close()
