"""The guard of PostgreSQL on drivers that block."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from asyncdlock.errors import LockError, StaleFence
from asyncdlock.fencing.dbapi import guard
from asyncdlock.fencing.postgres import MIGRATION
from asyncdlock.fencing.postgres import guard as guard_for_asyncio
from harness import servers
from harness.servers.postgres_node import PostgresNode
from tests.conftest import _started

Transaction = Callable[[], AbstractContextManager[tuple[Any, Callable[[str], Any]]]]


@pytest.fixture(scope="module")
def node() -> Iterator[PostgresNode]:
    with _started(servers.postgres()) as node:
        with psycopg.connect(node.url, autocommit=True) as connection:
            connection.execute(MIGRATION)
            connection.execute("CREATE TABLE account (id text PRIMARY KEY, balance int)")
        yield node


@pytest.fixture
def key() -> str:
    return f"account:{uuid4()}"


@pytest.fixture(params=["psycopg", "psycopg, rows as dictionaries", "session", "connection"])
def transaction(request: pytest.FixtureRequest, node: PostgresNode) -> Iterator[Transaction]:
    """`with transaction() as (connection, execute):`"""
    engine = create_engine(node.url.replace("postgres://", "postgresql+psycopg://", 1))

    @contextmanager
    def begin() -> Iterator[tuple[Any, Callable[[str], Any]]]:
        if request.param == "session":
            with Session(engine) as orm, orm.begin():
                yield orm, lambda statement: orm.execute(text(statement))
        elif request.param == "connection":
            with engine.begin() as core:
                yield core, lambda statement: core.execute(text(statement))
        elif request.param == "psycopg":
            with psycopg.connect(node.url, autocommit=True) as connection, connection.transaction():
                yield connection, connection.execute
        else:
            with psycopg.connect(node.url, row_factory=dict_row) as mapping:
                yield mapping, mapping.execute

    yield begin
    engine.dispose()


def test_a_fresh_writer_wins_and_a_stale_one_loses(
    node: PostgresNode, transaction: Transaction, key: str
) -> None:
    for _ in range(2):  # the same holder, once more
        with transaction() as (connection, execute):
            guard(connection, key, 34)
            execute(f"INSERT INTO account VALUES ('{key}', 34) ON CONFLICT (id) DO UPDATE SET balance = 35")
    with pytest.raises(StaleFence) as refused, transaction() as (connection, execute):
        guard(connection, key, 33)
        execute(f"UPDATE account SET balance = 33 WHERE id = '{key}'")
    assert (refused.value.key, refused.value.seen, refused.value.got) == (key, 34, 33)
    with psycopg.connect(node.url) as direct:
        assert direct.execute("SELECT balance FROM account WHERE id = %s", (key,)).fetchall() == [(35,)]


def test_without_a_transaction_it_is_refused(node: PostgresNode, key: str) -> None:
    with psycopg.connect(node.url, autocommit=True) as connection, pytest.raises(LockError, match="belongs"):
        guard(connection, key, 34)
    engine = create_engine(
        node.url.replace("postgres://", "postgresql+psycopg://", 1), isolation_level="AUTOCOMMIT"
    )
    with engine.begin() as core, pytest.raises(LockError, match="belongs"):
        guard(core, key, 34)
    engine.dispose()


def test_each_guard_names_the_other_for_the_other_kind_of_connection(node: PostgresNode, key: str) -> None:
    """Nothing would be awaited, and nothing refused."""

    async def mixed_up() -> None:
        async with await psycopg.AsyncConnection.connect(node.url) as connection:
            with pytest.raises(TypeError, match=r"fencing\.postgres"):
                guard(connection, key, 34)
        with psycopg.connect(node.url) as blocking, pytest.raises(TypeError, match=r"fencing\.dbapi"):
            await guard_for_asyncio(blocking, key, 34)

    asyncio.run(mixed_up())


_DJANGO = """
import sys
import django
from django.conf import settings

port, key = sys.argv[1:]
options = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": port}
settings.configure(DATABASES={"default": {**options, "USER": "postgres", "NAME": "postgres"}})
django.setup()

from django.db import connection, transaction
from asyncdlock.fencing.dbapi import guard

for fence in (34, 33):
    try:
        with transaction.atomic():
            guard(connection, key, fence)
            print(fence, "inside")
    except Exception as error:
        print(fence, type(error).__name__)
try:
    guard(connection, key, 35)
except Exception as error:
    print(35, type(error).__name__)
"""


def test_django(node: PostgresNode, key: str) -> None:
    program = [sys.executable, "-c", _DJANGO, str(urlsplit(node.url).port), key]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["34 inside", "33 StaleFence", "35 LockError"]
