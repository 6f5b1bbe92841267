"""hold_all(): several locks at once, all of them or none.

Every user takes them in the order of their names, so that no two users can wait for each other. Each lock has
a dead man's switch of its own; losing any of them ends the body, and also the wait for the rest.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from asyncdlock._arguments import check_key, check_timeout
from asyncdlock._hold import give_back
from asyncdlock.errors import AcquireTimeout
from asyncdlock.handle import Handle

if TYPE_CHECKING:
    from asyncdlock.client import LockClient


def in_order(keys: Iterable[str]) -> list[str]:
    """The keys as all users take them: sorted, each once.

    :raises InvalidKey: one of them cannot be the name of a lock.
    :raises ValueError: it is a single string, or there are none.
    """
    if isinstance(keys, str):
        raise ValueError(f"hold_all takes several keys, not the single string {keys!r}: put it into a list")
    asked = [check_key(key) for key in keys]
    if not asked:
        raise ValueError("hold_all needs at least one key: without a lock nothing is protected")
    return sorted(set(asked))


@asynccontextmanager
async def hold_all(
    client: "LockClient", keys: list[str], *, ttl: float, timeout: float | None, max_hold: float | None
) -> AsyncIterator[Mapping[str, Handle]]:
    """Hold `keys`, which are in order, while the body runs."""
    async with AsyncExitStack() as stack:

        async def enter(key: str, left: float | None) -> Handle:
            return await stack.enter_async_context(client.hold(key, ttl=ttl, timeout=left, max_hold=max_hold))

        handles: dict[str, Handle] = {}
        await _one_by_one(keys, handles, enter, timeout)
        stack.push_async_callback(_give_back_together, tuple(handles.values()))
        yield handles


async def acquire_all(
    client: "LockClient", keys: list[str], *, ttl: float, timeout: float | None, max_hold: float | None
) -> dict[str, Handle]:
    """The same locks for a body that cannot be cancelled: the caller gives them back."""

    async def take(key: str, left: float | None) -> Handle:
        return await client.acquire(key, ttl=ttl, timeout=left, max_hold=max_hold)

    handles: dict[str, Handle] = {}
    try:
        await _one_by_one(keys, handles, take, timeout)
    except BaseException:
        await asyncio.gather(*map(give_back, handles.values()), return_exceptions=True)
        raise
    return handles


async def _one_by_one(
    keys: list[str],
    handles: dict[str, Handle],
    take: Callable[[str, float | None], Awaitable[Handle]],
    timeout: float | None,
) -> None:
    """Fill `handles`, within one time-out for all.

    :raises LockLost: one was lost while another was waited for.
    """
    if timeout is not None:
        check_timeout(timeout)
    called = time.monotonic()
    for key in keys:
        left = None if timeout is None else max(0.0, called + timeout - time.monotonic())
        try:
            handles[key] = await take(key, left)
        except AcquireTimeout as late:
            raise AcquireTimeout(
                f"lock {key!r}, one of {len(keys)}, was not granted within {timeout:g} s of all",
                key=key,
                owner=late.owner,
            ) from None
    for handle in handles.values():
        handle.check()


async def _give_back_together(handles: tuple[Handle, ...]) -> None:
    """In one round trip. The exit of each hold deals with whatever fails here."""
    held = [handle for handle in handles if handle.held]
    await asyncio.gather(*(give_back(handle) for handle in held), return_exceptions=True)
