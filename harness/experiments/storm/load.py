"""One process of the load: contenders that take the lock, read, wait, write and leave, until told to stop.

They never look at their lease before they write: whether that was right is for the resource to say.
"""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import AcquireTimeout, LockError
from harness.experiments.storm.plan import CONTENDERS, PlannedTurn, draw_turns
from harness.lab.actor import warm
from harness.lab.forkserver import Channel
from harness.lab.resource_view import ResourceView
from harness.lab.shared_set import SetHolder, SharedSet
from harness.resource.client import ResourceClient

_PATIENCE = 4.0  # with the lock and with the resource, in TTLs
_BREATH = 0.02  # when a server is down: no busy loop


def load(spec: Mapping[str, Any], channel: Channel) -> None:
    uvloop.run(_load(spec, channel))


async def _load(spec: Mapping[str, Any], channel: Channel) -> None:
    client = asyncdlock.connect(spec["url"])
    key, ttl, process = spec["key"], spec["ttl"], spec["process"]
    async with ResourceClient(spec["resource"], timeout=_PATIENCE * ttl) as resource:
        await warm(client, key)
        shared = SharedSet(ResourceView(resource), spec["mode"])
        channel.say("ready")
        if channel.hear() is None:
            return
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(channel.fileno(), stop.set)

        async def contend(number: int) -> None:
            holder = SetHolder(key, client, shared, partial(channel.say, contender=number))
            for count, turn in enumerate(draw_turns(spec["seed"], process, number, ttl=ttl), 1):
                if stop.is_set():
                    return
                await _take_turn(holder, f"{process}.{number}.{count}", turn, ttl)

        await asyncio.gather(*map(contend, range(CONTENDERS)))
    # The client is not closed: its process ends here, and what it may still hold ends with its TTL.


async def _take_turn(holder: SetHolder, element: str, turn: PlannedTurn, ttl: float) -> None:
    try:
        await holder.acquire(ttl=ttl, timeout=_PATIENCE * ttl, renew=turn.renew)
    except AcquireTimeout:
        return
    except LockError:
        await asyncio.sleep(_BREATH)
        return
    if await holder.read():
        if turn.stall:
            time.sleep(turn.wait)  # noqa: ASYNC251 - the loop is to stand still
        else:
            await asyncio.sleep(turn.wait)
        await holder.add(element)
    else:
        await asyncio.sleep(_BREATH)
    await holder.leave()
