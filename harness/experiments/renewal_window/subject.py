"""The process that is frozen: it holds a lock, pauses at the given point, and writes."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import LockClient, LockLost
from harness.lab.actor import Actor
from harness.lab.event import Event
from harness.lab.forkserver import Channel
from harness.resource.client import ResourceClient


def subject(spec: Mapping[str, Any], channel: Channel) -> None:
    """Serve one trial after the other. The loop stands still in between: nothing is held then."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = contextlib.AsyncExitStack()
        client, writers = runner.run(_open(stack, spec))
        while (trial := channel.hear()) is not None:
            runner.run(_trial(client, writers[trial.details["fence"]], trial, channel))
        runner.run(stack.aclose())


async def _open(
    stack: contextlib.AsyncExitStack, spec: Mapping[str, Any]
) -> tuple[LockClient, dict[str, ResourceClient]]:
    client = await stack.enter_async_context(asyncdlock.connect(spec["url"]))
    resources: dict[str, str] = spec["resources"]
    writers = {
        fence: await stack.enter_async_context(ResourceClient(resource))
        for fence, resource in resources.items()
    }
    return client, writers


async def _trial(client: LockClient, writer: ResourceClient, trial: Event, channel: Channel) -> None:
    told = trial.details
    actor = Actor(told["key"], client, writer, channel.say)
    handle = await actor.acquire(ttl=told["ttl"], renew=told["watchdog"])
    await asyncio.sleep(told["work"])
    try:
        for step in told["steps"]:
            if step == "check()":
                handle.check()
            elif step == "pause":
                await _pause(actor, told["level"], told["pause"], channel)
            else:
                await actor.write("the holder's")
    except LockLost as error:
        actor.say("lost", error=str(error))
    await actor.release()


async def _pause(actor: Actor, level: str, seconds: float, channel: Channel) -> None:
    if level == "event loop":
        actor.stall(seconds)
        return
    actor.say("pausing", seconds=seconds)
    if level == "coroutine":
        await asyncio.sleep(seconds)
    else:
        channel.hear()  # stands here until it was stopped, continued, and told to go on
    actor.say("resumed")
