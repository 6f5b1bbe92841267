"""One process of a soak: contenders that never hurry, take every way through the client, and disturb nobody.

Waits end in a time-out, tasks are cancelled, leases are renewed, clients are opened and closed: what any of
these leaves behind adds up.
"""

import asyncio
import random
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import LockClient, LockError
from harness.lab.forkserver import Channel
from harness.resource.client import ResourceClient
from harness.torture.plan import CONTENDERS
from harness.torture.possessions import close_clients, open_clients

KEYS = tuple(f"soak:{number}" for number in range(8))

_PAUSE = 0.08  # seconds between two visits of a contender, on average
_SHORT, _LONG = 0.02, 10.0  # patience
_A_VISIT_IN = {"short": 4, "cancelled": 10, "renewed": 100, "on a client of its own": 200}


def soak_load(spec: Mapping[str, Any], channel: Channel) -> None:
    """The role of a participant: says every `spec["every"]` seconds how it is, until it is told to stop."""
    uvloop.run(_soak(spec, channel))


async def _soak(spec: Mapping[str, Any], channel: Channel) -> None:
    before, clients = await open_clients(spec, KEYS[0])
    async with ResourceClient(spec["resource"]) as resource:
        load = _SoakLoad(spec, channel, clients, resource)
        channel.say("ready")
        if channel.hear() is None:
            return
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        loop.add_reader(channel.fileno(), stopped.set)
        contenders = [asyncio.create_task(load.contend(number, stopped)) for number in range(CONTENDERS)]
        while not stopped.is_set():
            await _wait(stopped, spec["every"])
            load.say_how_it_is()
        loop.remove_reader(channel.fileno())
        await asyncio.gather(*contenders)
    channel.say("done", **await close_clients(before, clients))


async def _wait(stopped: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        pass


class _SoakLoad:
    def __init__(
        self, spec: Mapping[str, Any], channel: Channel, clients: list[LockClient], resource: ResourceClient
    ) -> None:
        self._spec, self._channel = spec, channel
        self._clients, self._resource = clients, resource
        self._rng = random.Random(f"soak {spec['seed']}, process {spec['process']}")
        self._waits: list[int] = []
        self._writes: list[int] = []
        self._cycles = self._failed = self._stale = 0

    def say_how_it_is(self) -> None:
        """Of the time since the last time: how long a lock took to be had, and a write beneath it."""
        waited = median(self._waits) / median(self._writes) if self._waits and self._writes else None
        self._channel.say(
            "sample",
            tasks=len(asyncio.all_tasks()),
            wait=waited,
            cycles=self._cycles,
            failed=self._failed,
            stale=self._stale,
        )
        self._waits, self._writes = [], []

    async def contend(self, number: int, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            await _wait(stopped, self._rng.uniform(0.0, 2 * _PAUSE))
            visit = asyncio.create_task(self._visit(self._clients[number % len(self._clients)]))
            if self._is("cancelled"):
                await asyncio.wait({visit}, timeout=self._rng.uniform(0.0, 0.01))
                visit.cancel()
            await asyncio.wait({visit})
            if not visit.cancelled():
                visit.result()

    def _is(self, kind: str) -> bool:
        return self._rng.random() * _A_VISIT_IN[kind] < 1

    async def _visit(self, client: LockClient) -> None:
        if self._is("on a client of its own"):
            async with asyncdlock.connect(self._spec["url"]) as own:
                await self._section(own)
        else:
            await self._section(client)

    async def _section(self, client: LockClient) -> None:
        key, ttl = self._rng.choice(KEYS), self._spec["ttl"]
        timeout = _SHORT if self._is("short") else _LONG
        work = 0.6 * ttl if self._is("renewed") else 0.002 * self._rng.random()
        began = time.perf_counter_ns()
        try:
            async with client.hold(key, ttl=ttl, timeout=timeout) as handle:
                self._waits.append(time.perf_counter_ns() - began)
                await asyncio.sleep(work)
                began = time.perf_counter_ns()
                reply = await self._resource.put(key, fence=handle.fence, owner=handle.owner)
                self._writes.append(time.perf_counter_ns() - began)
        except LockError:
            self._failed += timeout != _SHORT
            return
        self._cycles += 1
        # It was never told of a loss: nobody can have been here with a later fence.
        self._stale += reply.write == "stale"
