"""One process of the load: contenders that take the lock, read, wait, write and leave, until told to stop.

They never look at their lease before they write: whether that was right is for the resource to say.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import uvloop

import asyncdlock
from asyncdlock import AcquireTimeout, LockClient, LockError, StaleFence
from asyncdlock.handle import Handle
from harness.experiments.storms.plan import CONTENDERS, Habits, Turn
from harness.experiments.trials.contender import connected
from harness.experiments.trials.nursery import Line
from harness.experiments.trials.shared_set import SharedSet

ROLE = f"{__name__}:live"

_PATIENCE = 4.0  # with the lock and with the resource, in TTLs
_BREATH = 0.02  # when a server is down: no busy loop


def live(spec: Mapping[str, Any], line: Line) -> None:
    uvloop.run(_live(spec, line))


async def _live(spec: Mapping[str, Any], line: Line) -> None:
    client = asyncdlock.connect(spec["url"])
    timeout = aiohttp.ClientTimeout(total=_PATIENCE * spec["ttl"])
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await connected(client, f"{spec['key']}, warm-up {spec['process']}")
        shared = SharedSet(spec["resource"], session, spec["mode"])
        line.say("ready")
        if line.hear() is None:
            return
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(line.fileno(), stop.set)
        contenders = [_Contender(number, spec, client, shared, line) for number in range(CONTENDERS)]
        await asyncio.gather(*(contender.contend(stop) for contender in contenders))
    # The client is not closed: its process ends here, and what it may still hold ends with its TTL.


class _Contender:
    def __init__(
        self, number: int, spec: Mapping[str, Any], client: LockClient, shared: SharedSet, line: Line
    ) -> None:
        self._number = number
        self._key: str = spec["key"]
        self._ttl: float = spec["ttl"]
        self._habits = Habits(spec["seed"], spec["process"], number, ttl=self._ttl)
        self._name = f"{spec['process']}.{number}"
        self._client = client
        self._shared = shared
        self._line = line

    async def contend(self, stop: asyncio.Event) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            await self._take_turn(f"{self._name}.{count}", self._habits.turn())

    async def _take_turn(self, element: str, turn: Turn) -> None:
        self._say("acquiring")
        try:
            handle = await self._client.acquire(
                self._key, ttl=self._ttl, timeout=_PATIENCE * self._ttl, renew=turn.renew
            )
        except AcquireTimeout as error:
            self._say("timed_out", error=str(error))
            return
        except LockError as error:
            self._say("failed", error=str(error))
            await asyncio.sleep(_BREATH)
            return
        self._say("granted", fence=handle.fence, owner=handle.owner)
        await self._use(handle, element, turn)
        try:
            self._say("released", owned=await handle.release())
        except LockError as error:
            self._say("failed", error=str(error))

    async def _use(self, handle: Handle, element: str, turn: Turn) -> None:
        fence = handle.fence
        try:
            found = await self._shared.read(self._key, fence)
        except StaleFence as stale:
            self._say("refused", seen=stale.seen)
            return
        except (aiohttp.ClientError, TimeoutError) as error:
            self._say("failed", error=f"the read came to nothing: {type(error).__name__}")
            await asyncio.sleep(_BREATH)
            return
        if turn.stall:
            time.sleep(turn.wait)  # noqa: ASYNC251 - the loop is to stand still
        else:
            await asyncio.sleep(turn.wait)
        self._say("writing", fence=fence, held=handle.held)
        reply = await self._shared.write(self._key, found, element, fence=fence, owner=handle.owner)
        self._say(reply.write, element=element, seen=reply.seen, error=reply.error)

    def _say(self, event: str, **details: Any) -> None:
        self._line.say(event, contender=self._number, **details)
