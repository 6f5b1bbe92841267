"""One process of the stress: many tasks that acquire, hold, release, time out and are cancelled at random.

Usage: python -m tests.stress.worker '{"clients": [[URL, OPTIONS], …], "keys": …, "ttl": …, "seed": …, "events": PATH, "tasks": N}'
"""  # noqa: E501

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

import asyncdlock
from asyncdlock import Handle, LockClient, LockError, LockLost
from tests.stress.events import EventLog

STUCK_AFTER = 60.0
"""Seconds after which a call counts as stuck: far beyond its time-out, for a machine busy with faults."""


class Contender:
    """One task after the other, each with a random life."""

    def __init__(self, log: EventLog, chance: random.Random, errors: Counter[str], ttl: float) -> None:
        self._log = log
        self._chance = chance
        self._errors = errors
        self._ttl = ttl
        self._numbers = itertools.count()

    async def live(self, name: str, client: LockClient, keys: list[str]) -> None:
        while True:
            attempt = f"{name}.{next(self._numbers)}"
            key = self._chance.choice(keys)
            self._log.write("wait", attempt, key)
            try:
                await self._watched(attempt, key, self._once(client, attempt, key))
            except (LockError, TimeoutError) as error:
                self._errors[type(error).__name__] += 1
            finally:
                self._log.write("over", attempt, key)
            await asyncio.sleep(self._chance.choice((0, 0, 0.001, 0.02)))

    async def _watched(self, attempt: str, key: str, call: Any) -> None:
        task = asyncio.ensure_future(call)
        limit = self._chance.choice((None, None, None, 0.0, 0.002, 0.02))
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
            if not done and limit is not None:
                task.cancel()
            if not done:
                done, _ = await asyncio.wait({task}, timeout=self._ttl + STUCK_AFTER)
            if not done:
                self._log.write("stuck", attempt, key, why=repr(task))
            with contextlib.suppress(asyncio.CancelledError):
                await task
        finally:
            task.cancel()

    async def _once(self, client: LockClient, attempt: str, key: str) -> None:
        way = self._chance.random()
        if way < 0.15:
            handle = await client.try_acquire(key, ttl=self._ttl)
            if handle is not None:
                await self._use(handle, attempt)
        elif way < 0.7:
            timeout = self._chance.choice((0.05, 0.5, 5.0, 20.0))
            await self._use(await client.acquire(key, ttl=self._ttl, timeout=timeout), attempt)
        else:
            async with client.hold(key, ttl=self._ttl, timeout=10.0) as held:
                self._note("got", attempt, held)
                await self._work(held, attempt)
                self._note("left", attempt, held)

    async def _use(self, handle: Handle, attempt: str) -> None:
        self._note("got", attempt, handle)
        try:
            await self._work(handle, attempt)
        finally:
            self._note("left", attempt, handle)
            await handle.release()

    async def _work(self, handle: Handle, attempt: str) -> None:
        length = self._chance.choice((0, 0, 0, 0.001, 0.003, 0.01, self._ttl * 0.6))
        until = time.monotonic() + length
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.05))
            self._note("beat", attempt, handle)

    def _note(self, kind: Any, attempt: str, handle: Handle) -> None:
        at = time.monotonic()
        held = handle.held
        self._log.write_holding(kind, attempt, handle.key, at, handle.fence, held, handle.remaining())


async def main(order: dict[str, Any]) -> None:
    chance = random.Random(order["seed"])
    log = EventLog(Path(order["events"]))
    errors: Counter[str] = Counter()
    clients = [asyncdlock.connect(url, **options) for url, options in order["clients"]]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    contender = Contender(log, chance, errors, order["ttl"])
    tasks = [
        asyncio.create_task(
            contender.live(f"{os.getpid()}.{number}", clients[number % len(clients)], order["keys"])
        )
        for number in range(order["tasks"])
    ]
    stopped = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({stopped, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for client in clients:
        await client.aclose()
    left_over = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    print(json.dumps({"errors": errors, "left_over": [repr(task) for task in left_over]}), flush=True)
    for task in tasks:
        if task in done:
            task.result()  # a contender ends by itself with a defect only


if __name__ == "__main__":
    with contextlib.suppress(LockLost):
        uvloop.run(main(json.loads(sys.argv[1])))
