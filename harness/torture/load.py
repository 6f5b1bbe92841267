"""One process of the load: contenders that read, wait and write under the lock, and are cancelled anywhere.

They never look at their lease before they write: whether that was right is for the resource to say.
"""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import uvloop

from asyncdlock import AcquireTimeout, BackendError, LockClient, LockError, LockLost
from asyncdlock.metrics import metrics_of
from harness.lab.forkserver import Channel
from harness.lab.resource_view import ResourceView
from harness.lab.shared_set import SetHolder, SharedSet
from harness.load.pacer import NANOSECONDS
from harness.resource.client import ResourceClient, Unanswered
from harness.torture.plan import CONTENDERS, KEYS, Visit, draw_visits
from harness.torture.possessions import close_clients, open_clients

_PATIENCE = 4.0  # with the resource, in TTLs
_BREATH = 0.02  # when a server is down: no busy loop


def load(spec: Mapping[str, Any], channel: Channel) -> None:
    """The role of a participant: ready, it begins when told, and ends when told again."""
    uvloop.run(_load(spec, channel))


async def _load(spec: Mapping[str, Any], channel: Channel) -> None:
    before, clients = await open_clients(spec, KEYS[0])
    load = _Load(spec, channel, clients)
    async with ResourceClient(spec["resource"], timeout=_PATIENCE * spec["ttl"]) as resource:
        shared = SharedSet(ResourceView(resource), "every operation")
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, load.cancel_all)  # first: whoever is ready may be struck
        channel.say("ready")
        if channel.hear() is None:
            return
        loop.add_reader(channel.fileno(), load.stop)
        await asyncio.gather(*(load.contend(number, shared) for number in range(CONTENDERS)))
        loop.remove_reader(channel.fileno())
    channel.say("done", **await close_clients(before, clients), visited=load.visited())


class _Load:
    def __init__(self, spec: Mapping[str, Any], channel: Channel, clients: list[LockClient]) -> None:
        self._spec = spec
        self._say = channel.say
        self._clients = clients
        self._stopped = False
        self._under_way: set[asyncio.Task[None]] = set()
        self._visited: Counter[str] = Counter()

    def stop(self) -> None:
        self._stopped = True

    def cancel_all(self) -> None:
        for task in self._under_way:
            task.cancel()

    def visited(self) -> dict[str, int]:
        """Rare paths that this process has been on."""
        counts = metrics_of(self._spec["backend"])
        return dict(
            self._visited
            + Counter(
                {
                    "lost lease noticed": counts.lost,
                    "renewal unknown": counts.renewals["unknown"],
                    "renewal refused": counts.renewals["lost"],
                    "release by a non-owner": counts.release_by_non_owner,
                    "fence regression repaired": counts.fence_regressions,
                }
            )
        )

    async def contend(self, number: int, shared: SharedSet) -> None:
        process, ttl = self._spec["process"], self._spec["ttl"]
        client, key = self._clients[number % len(self._clients)], KEYS[number % len(KEYS)]
        say = partial(self._say, contender=number)
        for count, visit in enumerate(draw_visits(self._spec["seed"], process, number, ttl=ttl), 1):
            if self._stopped:
                return
            holder = SetHolder(key, client, shared, say)
            element = f"{process}.{self._spec['life']}.{number}.{count}"
            task = asyncio.create_task(self._visit(holder, visit, element))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.wait({task}, timeout=visit.cancel_after)
            if visit.cancel_after is not None:
                task.cancel()
            await asyncio.wait({task})
            if task.cancelled():
                self._visited["cancelled"] += 1
                say("cancelled")
            elif (error := task.exception()) is not None:
                raise error

    async def _visit(self, holder: SetHolder, visit: Visit, element: str) -> None:
        try:
            if visit.how == "hold":
                await self._hold(holder, visit, element)
            else:
                await self._take(holder, visit, element)
        except AcquireTimeout:
            self._visited["wait timed out"] += 1
        except LockLost:
            self._visited["body ended with its lease"] += 1
        except (LockError, Unanswered) as error:
            if isinstance(error, BackendError):
                doubt = "not done for certain" if error.definite else "in doubt"
                self._visited[f"call failed, {doubt}"] += 1
            await asyncio.sleep(_BREATH)

    async def _take(self, holder: SetHolder, visit: Visit, element: str) -> None:
        ttl = self._spec["ttl"]
        if visit.how == "try":
            if await holder.try_acquire(ttl=ttl, renew=visit.renew) is None:
                await asyncio.sleep(_BREATH)
                return
        else:
            await holder.acquire(ttl=ttl, timeout=visit.timeout, renew=visit.renew)
        try:
            await _section(holder, visit, element)
        finally:
            await holder.leave()

    async def _hold(self, holder: SetHolder, visit: Visit, element: str) -> None:
        ttl = self._spec["ttl"]
        holder.say("acquiring", key=holder.key)
        try:
            async with holder.client.hold(holder.key, ttl=ttl, timeout=visit.timeout) as handle:
                holder.granted(handle)
                await _section(holder, visit, element)
                valid_until = int(handle.expires_at * NANOSECONDS)
            holder.say("released", owned=True, valid_until=valid_until)
        except LockError as error:
            said = {AcquireTimeout: "timed_out", LockLost: "lost"}.get(type(error), "failed")
            holder.say(said, error=str(error))
            raise


async def _section(holder: SetHolder, visit: Visit, element: str) -> None:
    if await holder.read():
        if visit.stall:
            time.sleep(visit.wait)  # noqa: ASYNC251 - the loop is to stand still
        else:
            await asyncio.sleep(visit.wait)
        with contextlib.suppress(Unanswered):
            await holder.add(element)
    else:
        await asyncio.sleep(_BREATH)
