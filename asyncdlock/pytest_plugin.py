"""Fixtures for users' own tests: locks in memory, a way to lose one, and a check that none is still held.

Works with pytest-asyncio, and with anyio's plugin on asyncio.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest

import asyncdlock
from asyncdlock._inside import backend_of, grant_of

try:
    from pytest_asyncio import fixture
except ImportError:
    fixture = pytest.fixture  # type: ignore[assignment]  # anyio drives those of the tests that it runs

_PATIENCE = 5.0


@pytest.fixture
def lock_url() -> str:
    """The URL of a lock server in memory, for this test alone: give it to the program under test."""
    return f"memory://{uuid4()}"


@fixture
async def locks(lock_url: str) -> AsyncIterator[asyncdlock.LockClient]:
    """A client of `lock_url`. The test fails if a lock of that server is still held at its end.

    Clean-up in the background, as after a cancellation, is waited for.
    """
    async with asyncdlock.connect(lock_url, metrics=False) as client:
        yield client
        deadline = time.monotonic() + _PATIENCE
        while (held := await _held(client)) and time.monotonic() < deadline:  # noqa: ASYNC110 - other clients
            await asyncio.sleep(0.01)
    if held:
        pytest.fail(f"still held at the end of the test: {', '.join(map(repr, held))}", pytrace=False)


@pytest.fixture
def lose_lock(locks: asyncdlock.LockClient) -> Callable[[asyncdlock.Handle], Awaitable[None]]:
    """`await lose_lock(handle)`: its server forgets the lock, and the holder finds out.

    The next waiter gets it. The body of a `hold()` is cancelled, and `LockLost` comes out of it.
    """

    async def lose(handle: asyncdlock.Handle) -> None:
        await backend_of(locks).release(grant_of(handle).claim)
        with contextlib.suppress(asyncdlock.LockLost):
            await handle.renew()
        await asyncio.sleep(0)  # a body that calls this itself is cancelled here

    return lose


async def _held(client: asyncdlock.LockClient) -> list[str]:
    return [key async for key in client.keys() if (await client.inspect(key)).held]  # noqa: SIM118 - no dict
