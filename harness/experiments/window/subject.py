"""The process that is frozen: it holds a lock, pauses at the given point, and writes."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import LockClient, LockLost
from harness.experiments.trials.nursery import Line
from harness.writer import FencedWriter, open_writer

ROLE = f"{__name__}:live"


def live(spec: Mapping[str, Any], line: Line) -> None:
    """Serve one trial after the other. The loop stands still in between: nothing is held then."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = contextlib.AsyncExitStack()
        client, writers = runner.run(_open(stack, spec))
        while (trial := line.hear()) is not None:
            runner.run(_trial(client, writers[trial["fence"]], trial, line))
        runner.run(stack.aclose())


async def _open(
    stack: contextlib.AsyncExitStack, spec: Mapping[str, Any]
) -> tuple[LockClient, dict[str, FencedWriter]]:
    client = await stack.enter_async_context(asyncdlock.connect(spec["url"]))
    resources: dict[str, str] = spec["resources"]
    writers = {
        fence: await stack.enter_async_context(open_writer(resource)) for fence, resource in resources.items()
    }
    return client, writers


async def _trial(client: LockClient, writer: FencedWriter, trial: Mapping[str, Any], line: Line) -> None:
    key = trial["key"]
    line.say("acquiring")
    handle = await client.acquire(key, ttl=trial["ttl"], renew=trial["watchdog"])
    line.say("granted", fence=handle.fence, owner=handle.owner)
    await asyncio.sleep(trial["work"])
    try:
        for step in trial["steps"]:
            if step == "check()":
                handle.check()
            elif step == "pause":
                await _pause(trial["level"], trial["pause"], line)
            else:
                line.say("writing", fence=handle.fence, held=handle.held)
                reply = await writer.put(key, fence=handle.fence, owner=handle.owner, body=b"the holder's")
                line.say(reply.write, fence=handle.fence, seen=reply.seen, error=reply.error)
    except LockLost as error:
        line.say("lost", error=str(error))
    line.say("released", owned=await handle.release())


async def _pause(level: str, seconds: float, line: Line) -> None:
    line.say("pausing", seconds=seconds)
    if level == "coroutine":
        await asyncio.sleep(seconds)
    elif level == "event loop":
        time.sleep(seconds)  # noqa: ASYNC251 - the loop is to stand still
    else:
        line.hear()  # stands here until it was stopped, continued, and told to go on
    line.say("resumed")
