"""Independent Redis nodes of a test's own, and what they hold."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from asyncdlock import LockClient, QuorumError
from harness import servers

PATIENCE = 30.0


@pytest.fixture
def key() -> str:
    return f"redlock-{uuid4().hex}"


async def owners(nodes: servers.RedisNodes, key: str) -> list[str | None]:
    """Who holds the lock on each running node."""
    return [await node.command("GET", key) for node in nodes if node.running]


async def counters(nodes: servers.RedisNodes, key: str) -> list[int]:
    """The fence counter on each running node."""
    return [int(await node.command("GET", f"fence:{{{key}}}") or 0) for node in nodes if node.running]


async def set_counters(nodes: servers.RedisNodes, key: str, values: list[int]) -> None:
    """Let node by node count on from these values."""
    for node, value in zip(nodes, values, strict=True):
        await node.command("SET", f"fence:{{{key}}}", value)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)


async def nobody_holds(nodes: servers.RedisNodes, key: str) -> None:
    """Return once no running node knows of the lock."""

    async def free() -> bool:
        return not any(await owners(nodes, key))

    await eventually(free)


async def warm(locks: LockClient, nodes: servers.RedisNodes) -> None:
    """Open the client's connection to every node, so that what follows is decided by the nodes alone."""
    key = f"warm-{uuid4().hex}"

    async def open_everywhere() -> bool:
        try:
            handle = await locks.acquire(key, ttl=PATIENCE)
        except QuorumError:  # connecting took longer than a node may take
            return False
        held = all([*await owners(nodes, key)])
        await handle.release()
        return held

    await eventually(open_everywhere)
    await nobody_holds(nodes, key)
