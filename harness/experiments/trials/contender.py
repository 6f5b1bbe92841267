"""A process that takes the lock once: connected, it waits for the sign, acquires, and does as it is told.

Forked and not run in the experiment's own process: a client of etcd brings threads of gRPC, and a process
that has them must not fork others.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import LockClient, LockError
from harness.experiments.trials.nursery import Line
from harness.writer import open_writer

ROLE = f"{__name__}:live"


def live(spec: Mapping[str, Any], line: Line) -> None:
    """`url`, `resource`, `key`, `ttl` and `body` as for a worker; `stall` stops the event loop for so many
    seconds before the write, `stay` holds the lock for so long."""
    uvloop.run(_live(spec, line))


async def connected(client: LockClient, key: str) -> None:
    """Return when the client has its connections: a short TTL leaves little time for them."""
    while True:
        try:
            handle = await client.acquire(key, ttl=10.0, renew=False)
            await handle.release()
            return
        except LockError:  # a Redlock node that took too long to connect to: it goes on in the background
            await asyncio.sleep(0.01)


async def _live(spec: Mapping[str, Any], line: Line) -> None:
    key = spec["key"]
    async with asyncdlock.connect(spec["url"]) as client, open_writer(spec["resource"]) as writer:
        await connected(client, f"{key}, warm-up of {spec['body']}")
        line.say("ready")
        if line.hear() is None:
            return
        line.say("acquiring")
        try:
            handle = await client.acquire(key, ttl=spec["ttl"])
        except LockError as error:
            line.say("failed", error=str(error))
            return
        line.say("granted", fence=handle.fence, owner=handle.owner)
        if stall := spec.get("stall"):
            line.say("pausing", seconds=stall)
            time.sleep(stall)  # noqa: ASYNC251 - the loop is to stand still
            line.say("resumed")
        await asyncio.sleep(spec.get("stay", 0.0))
        line.say("writing", fence=handle.fence, held=handle.held)
        reply = await writer.put(key, fence=handle.fence, owner=handle.owner, body=spec["body"].encode())
        line.say(reply.write, fence=handle.fence, seen=reply.seen, error=reply.error)
        line.say("released", owned=await handle.release())
