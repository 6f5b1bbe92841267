"""Resources in child processes, one per kind of store, and a client that shows whole answers."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg
import pytest

from harness import servers
from harness.resource import ResourceProcess
from harness.resource.client import ResourceClient
from harness.servers.s3_node import S3Node

STORES = ("memory", "sqlite", "sqlite-full", "postgres")
HTTP_STORES = ("memory", "sqlite", "postgres", "s3")


S = TypeVar("S", bound=servers.Server)


@contextmanager
def running(node: S) -> Iterator[S]:
    """Start from a fixture that is not async, so that the process may outlive any test's event loop."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        try:
            runner.run(node.start())
            yield node
        finally:
            node.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The server that ASYNCDLOCK_POSTGRES_DSN names, or one for the session."""
    if dsn := os.environ.get("ASYNCDLOCK_POSTGRES_DSN"):
        yield dsn
        return
    with running(servers.PostgresNode()) as node:
        yield node.url


@pytest.fixture(scope="session")
def postgres_dsn(postgres_server: str) -> Iterator[str]:
    """A schema of this session's own."""
    dsn = postgres_server
    schema = f"resource_{uuid.uuid4().hex}"
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(_execute(dsn, f"CREATE SCHEMA {schema}"))
        yield f"{dsn}{'&' if '?' in dsn else '?'}search_path={schema}"
        runner.run(_execute(dsn, f"DROP SCHEMA {schema} CASCADE"))


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """A bucket of this session's own, as the start of a `--store`."""
    with running(S3Node()) as node:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(node.create_bucket("values"))
        yield f"s3:http://access:hidden@{node.address}/values"


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def store_url(name: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """The `--store` for one of `STORES`, or for `s3`."""
    if name == "postgres":
        return f"postgres:{request.getfixturevalue('postgres_dsn')}"
    if name == "s3":
        return f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}"
    if name == "memory":
        return name
    return f"sqlite:{folder / 'resource.db'}{'?sync=full' if name == 'sqlite-full' else ''}"


@pytest.fixture(scope="session", params=HTTP_STORES)
def any_resource(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ResourceProcess]:
    """A fencing resource on each kind of store, shared by the session: use keys of your own."""
    store = store_url(request.param, tmp_path_factory.mktemp("resource"), request)
    with running(ResourceProcess(store=store)) as node:
        yield node


@pytest.fixture(scope="session", params=HTTP_STORES)
def any_unfenced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ResourceProcess]:
    """As `any_resource`, with `--fence off`."""
    store = store_url(request.param, tmp_path_factory.mktemp("unfenced"), request)
    with running(ResourceProcess(store=store, fence="off")) as node:
        yield node


@pytest.fixture
async def http(any_resource: ResourceProcess) -> AsyncIterator[ResourceClient]:
    async with ResourceClient(any_resource.url) as client:
        yield client


@pytest.fixture
async def unfenced(any_unfenced: ResourceProcess) -> AsyncIterator[ResourceClient]:
    async with ResourceClient(any_unfenced.url) as client:
        yield client


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"key-{uuid.uuid4()}"
