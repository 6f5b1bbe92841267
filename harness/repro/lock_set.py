"""One process of the lock-set: adds elements to shared sets, one holder at a time if the lock is right."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import uvloop

import asyncdlock
from asyncdlock import LockClient, LockError, StaleFence
from harness.lab.forkserver import Channel
from harness.lab.resource_view import ResourceView
from harness.lab.shared_set import SharedSet
from harness.repro.etcd_lock import EtcdLock, EtcdLockFailed
from harness.resource.client import ResourceClient, Unanswered

_PATIENCE = 20.0

Hold = Callable[[str], contextlib.AbstractAsyncContextManager[int]]
"""Holds the lock of that name for the length of an `async with`; yields its fence."""


def lock_set(spec: Mapping[str, Any], channel: Channel) -> None:
    uvloop.run(_lock_set(spec, channel))


async def _lock_set(spec: Mapping[str, Any], channel: Channel) -> None:
    timeout = aiohttp.ClientTimeout(total=_PATIENCE)
    connector = aiohttp.TCPConnector(limit=0)  # a waiter of etcd's Lock occupies a connection
    async with (
        asyncdlock.connect(spec["lock_url"]) as client,
        aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
        contextlib.AsyncExitStack() as stack,
    ):
        holds: dict[str, Hold] = {
            "etcd": EtcdLock(spec["member_url"], session, ttl=spec["ttl"]).hold,
            "ours": _holder(client, spec["ttl"]),
        }
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(channel.fileno(), stop.set)
        adders = []
        for arm in spec["arms"]:
            resource = await stack.enter_async_context(ResourceClient(arm["resource"], timeout=_PATIENCE))
            shared = SharedSet(ResourceView(resource), arm["mode"])
            for number in range(spec["sets"]):
                key = f"{arm['name']}, set {number}"
                rng = random.Random(f"{spec['seed']} {spec['process']} {key}")
                adders.append(_add(holds[arm["lock"]], shared, key, spec, rng, stop, channel))
        await asyncio.gather(*adders)


def _holder(client: LockClient, ttl: float) -> Hold:
    @contextlib.asynccontextmanager
    async def hold(name: str) -> AsyncIterator[int]:
        # `acquire` and not `client.hold`, which would cancel a holder that has lost its lease: what the
        # lock alone is worth is to be measured.
        handle = await client.acquire(name, ttl=ttl)
        try:
            yield handle.fence
        finally:
            await handle.release()

    return hold


async def _add(
    hold: Hold,
    shared: SharedSet,
    key: str,
    spec: Mapping[str, Any],
    rng: random.Random,
    stop: asyncio.Event,
    channel: Channel,
) -> None:
    """Add element after element: take the lock, read the set, wait, write it back."""
    count = 0
    while not stop.is_set():
        count += 1
        element = f"{spec['process']}.{count}"
        wait = rng.uniform(0, spec["longest_wait"])
        try:
            async with hold(key) as fence:
                found = await shared.read(key, fence)
                await asyncio.sleep(wait)
                owner = f"{key}, {element}"
                reply = await shared.write(key, found, element, fence=fence, owner=owner)
            channel.say(reply.write, key=key, element=element)
        except StaleFence:
            channel.say("stale", key=key)
        except (LockError, EtcdLockFailed, Unanswered):
            await asyncio.sleep(0.1)
