"""Fixtures of the tests that run over every backend."""

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest

import asyncdlock
from harness.servers.catalogue import LockServer
from tests.contract.cases import CASES, Case

PATIENCE = 60.0
"""Seconds until a condition that never comes fails its test: far beyond any wait of a loaded machine."""


class Connect(Protocol):
    """Opens another client on the test's server; closed when the test ends."""

    def __call__(self, **options: Any) -> asyncdlock.LockClient: ...


Claims = Callable[[], Awaitable[list[str]]]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def url(case: Case, installed: Callable[[str], LockServer]) -> str:
    """The URL of the session's server for the backend under test."""
    return installed(case.name).url + case.query


@pytest.fixture
async def connect(case: Case, url: str) -> AsyncIterator[Connect]:
    clients: list[asyncdlock.LockClient] = []

    def opened(**options: Any) -> asyncdlock.LockClient:
        clients.append(asyncdlock.connect(url, **{**case.options, **options}))
        return clients[-1]

    yield opened
    for client in clients:
        await client.aclose()


@pytest.fixture
async def locks(connect: Connect) -> asyncdlock.LockClient:
    """A client of the backend under test."""
    return connect()


@pytest.fixture
def key() -> str:
    return f"k-{uuid.uuid4().hex}"


@pytest.fixture
def claims(case: Case, url: str, key: str) -> Claims:
    """What the server knows of the test's key: the holder, then whoever waits."""

    async def look() -> list[str]:
        return await case.claims(url, key)

    return look


@pytest.fixture
def ttl(case: Case, locks: asyncdlock.LockClient) -> float:
    return shortest_ttl(case, locks.capabilities)


def shortest_ttl(case: Case, can: asyncdlock.Capabilities) -> float:
    """A TTL to wait for the end of: short, but long enough to be renewed in time on a loaded machine."""
    shortest = max(can.min_ttl, case.ttl)
    return math.ceil(shortest / can.ttl_step) * can.ttl_step if can.ttl_step else shortest


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return when `condition` holds.

    :raises TimeoutError: it never did.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            holds = condition()
            if holds is True or (not isinstance(holds, bool) and await holds):
                return
            await asyncio.sleep(0.005)
