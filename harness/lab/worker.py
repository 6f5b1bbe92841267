"""A worker: takes the lock, pauses, works, writes with its fence and releases, as often as it is told."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import AcquireTimeout, LockClient, LockError
from harness.lab.actor import Actor, warm
from harness.lab.event import Say
from harness.lab.forkserver import Channel
from harness.resource.client import ResourceClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is to do: the flags of `python -m harness worker`."""

    url: str
    key: str
    resource_url: str | None = None
    ttl: float = 10.0
    timeout: float | None = None
    pause: float = 0.0
    work: float = 0.0
    renew: bool = True
    fence: bool = True
    count: int = 1
    body: str | None = None


def worker(spec: Mapping[str, Any], channel: Channel) -> None:
    """The role of a participant: connected, it says `ready`, and begins when told."""
    uvloop.run(_wait_and_work(Job(**spec), channel))


async def _wait_and_work(job: Job, channel: Channel) -> None:
    async with asyncdlock.connect(job.url) as client:
        await warm(client, job.key)
        channel.say("ready")
        if channel.hear() is not None:
            await work(job, client, channel.say)


async def work(job: Job, client: LockClient, say: Say) -> bool:
    """All turns; whether each came to its end, whatever the resource said."""
    async with AsyncExitStack() as stack:
        writer = None
        if job.resource_url is not None:
            writer = await stack.enter_async_context(ResourceClient(job.resource_url))
        actor = Actor(job.key, client, writer, say)
        return all([await _turn(job, actor) for _ in range(job.count)])


async def _turn(job: Job, actor: Actor) -> bool:
    try:
        handle = await actor.acquire(ttl=job.ttl, timeout=job.timeout, renew=job.renew)
        if job.pause:
            actor.stall(job.pause)
        await asyncio.sleep(job.work)
        decided = True
        if job.resource_url is not None:
            body = handle.owner if job.body is None else job.body
            decided = await actor.write(body, fenced=job.fence) in ("accepted", "stale")
        await actor.release()
    except AcquireTimeout:
        return True
    except (LockError, ValueError, OSError):
        return False
    return decided
