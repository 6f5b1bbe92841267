"""A program that forks with a client in its hands: `forking.py URL KEY WAY LOOP`; it answers in JSON.

The child uses the client in every way and leaves, or is torn down with the event loop that it inherited. The
parent then goes on as if nothing had happened.
"""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import uvloop

import asyncdlock


async def outcome(call: Callable[[], Awaitable[Any]]) -> str:
    try:
        async with asyncio.timeout(30.0):
            return f"returned {await call()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def use(locks: asyncdlock.LockClient, handle: asyncdlock.Handle, key: str) -> dict[str, str]:
    """What each verb says."""

    async def hold() -> None:
        async with locks.hold(f"{key}-free"):
            pass

    async def check() -> None:
        handle.check()

    return {
        "acquire": await outcome(lambda: locks.acquire(f"{key}-free", timeout=5.0)),
        "try_acquire": await outcome(lambda: locks.try_acquire(f"{key}-free")),
        "hold": await outcome(hold),
        "raise_fence": await outcome(lambda: locks.raise_fence(key, above=1)),
        "inspect": await outcome(lambda: locks.inspect(key)),
        "force_release": await outcome(lambda: locks.force_release(key)),
        "renew": await outcome(handle.renew),
        "release": await outcome(handle.release),
        "check": await outcome(check),
        "held": str(handle.held),
        "remaining": str(handle.remaining()),
        "aclose": await outcome(locks.aclose),
    }


def in_child(
    way: str, answers: int, locks: asyncdlock.LockClient, handle: asyncdlock.Handle, key: str
) -> NoReturn:
    said: dict[str, str] = {}
    if way == "use":
        said = asyncio.run(use(locks, handle, key))
    elif way == "collect":
        del locks, handle
        gc.collect()
    os.write(answers, json.dumps(said).encode())
    os.close(answers)
    if way == "tear down":
        raise SystemExit(0)  # through the inherited event loop
    os._exit(0)


async def main(url: str, key: str, way: str) -> None:
    async with asyncdlock.connect(url) as locks, asyncdlock.connect(url) as other:
        handle = await locks.acquire(key, ttl=60.0)
        busy = await other.acquire(f"{key}-busy", ttl=60.0)
        waiting = asyncio.create_task(locks.acquire(f"{key}-busy", ttl=60.0))
        await asyncio.sleep(0.2)
        owners = {handle.owner}
        answers, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            in_child(way, theirs, locks, handle, key)
        os.close(theirs)
        ended, status = 0, 0
        while not ended:
            # Not in a thread: a loop that is torn down in a child takes its parent's wake-up pipe along.
            await asyncio.sleep(0.01)
            ended, status = os.waitpid(child, os.WNOHANG)
        with os.fdopen(answers, "rb") as pipe:
            said = json.load(pipe)

        async with asyncio.timeout(60.0):
            handle.check()
            await handle.renew()
            refused = await locks.try_acquire(f"{key}-busy") is None
            released = await busy.release()
            granted = await waiting
            after = [await granted.release(), await handle.release()]
            owners.add(granted.owner)
    found = {
        "child": said,
        "status": os.waitstatus_to_exitcode(status),
        "refused": refused,
        "released": [released, *after],
        "owners": len(owners),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    factory = uvloop.new_event_loop if sys.argv[4] == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(*sys.argv[1:4]))
