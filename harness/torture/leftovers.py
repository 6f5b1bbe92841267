"""What a round leaves once all clients have closed: nothing, after the leases of the killed have ended."""

import asyncio
import contextlib
from collections.abc import Collection

import asyncdlock
from asyncdlock import LockError
from harness.lab.rig import Rig
from harness.servers.redis_node import RedisNode
from harness.torture.plan import KEYS

_PATIENCE = 30.0
"""Seconds after which what is there stays: far beyond any lease and any reconnect."""


async def left_over(rig: Rig, keys: Collection[str] = KEYS) -> list[str]:
    """A sentence for each thing that does not go away by itself."""
    found: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            while found := await _look(rig, keys):  # noqa: ASYNC110 - no server tells
                await asyncio.sleep(0.1)
    return found


async def _look(rig: Rig, keys: Collection[str]) -> list[str]:
    open_still = sum(link.clients for access in rig.accesses for link in access.lock_links)
    found = [f"{open_still} connections to the lock server are still open"] if open_still else []
    try:
        async with asyncdlock.connect(rig.url) as client:
            present = client.keys()
            found += [f"{key!r} is still held or waited for" async for key in present if key in keys]
    except LockError as error:
        found.append(f"the lock server does not tell what is left: {error}")
    for node in rig.nodes:
        if isinstance(node, RedisNode):
            names = [name for name in await node.command("KEYS", "*") if not name.startswith("fence:")]
            found += [f"{name!r} is still in {node.address}" for name in names if not await _ends(node, name)]
    return found


async def _ends(node: RedisNode, name: str) -> bool:
    """What a killed client told of itself stays for a while, and then goes by itself."""
    return name.startswith("client:") and await node.command("PTTL", name) != -1


async def usable_again(rig: Rig, ttl: float) -> list[str]:
    """Take each lock once more, its counter raised above the resource's mark: a sentence for each failure."""
    found = []
    async with asyncdlock.connect(rig.url) as client:
        for key in KEYS:
            try:
                if client.capabilities.fence_floor:
                    await client.raise_fence(key, above=(await rig.view.value(key)).max_fence)
                handle = await client.acquire(key, ttl=ttl, timeout=_PATIENCE)
                await handle.release()
            except LockError as error:
                found.append(f"{key!r} cannot be had after the round: {error}")
                continue
            if handle.fence <= (await rig.view.value(key)).max_fence:
                found.append(f"the fence of {key!r} is {handle.fence}, which the resource refuses")
    return found
