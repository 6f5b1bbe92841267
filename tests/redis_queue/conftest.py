"""Servers of these tests: Debian's Redis 7 and the wheel's Valkey, one of a test's own each."""

from collections.abc import AsyncIterator

import pytest

from harness import servers


@pytest.fixture(params=["redis", "valkey"])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[servers.RedisNode]:
    """A server of this test's own, of each flavour in turn."""
    async with servers.redis(flavour=request.param) as server:
        yield server


@pytest.fixture
async def one_node() -> AsyncIterator[servers.RedisNode]:
    """A server of this test's own, whichever is at hand: for tests that take their time."""
    async with servers.redis() as server:
        yield server
