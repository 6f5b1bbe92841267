"""The dead waiters of a fair queue: how long those behind them wait."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import uvloop

import asyncdlock
from asyncdlock.backends.redis.keys import companion
from harness.faults import FaultJournal, frozen_process, kill_process
from harness.lab import Lab
from harness.lab.forkserver import Channel
from harness.lab.participant import Forkserver
from harness.load.clock import now
from harness.repro.finding import Figure, Finding
from harness.repro.registry import reproduction
from harness.servers import RedisNode

ELSEWHERE = 5.0
"""Seconds for each dead waiter."""
TTL = 2.0
COUNTS = (1, 5, 20)
TRIALS, QUICK_TRIALS = 10, 3


@reproduction(
    name="dead-waiters",
    about="A process with several places in a fair queue is killed: when does whoever is next get the lock?",
    published="5 s for each dead waiter: five of them delay the rest by 25 s",
    source="Redisson's documentation of its fair lock, and redisson/redisson#1353",
    claim="At once, however many died: the server sees that nobody listens for them. A process that is "
    "frozen and not dead costs 3 s of patience and a TTL at most, also not for each of its places.",
)
async def run(lab: Lab) -> Finding:
    trials = QUICK_TRIALS if lab.quick else TRIALS
    server = await lab.lock_server("redis-queue")
    # The server's own queue is measured: tasks of one process must not share one place.
    url = f"{server.url}?local_queue=off"
    kinds = list(product(("killed", "frozen"), COUNTS))
    lab.plan(kinds=kinds, trials=trials)
    (node,) = server.nodes
    assert isinstance(node, RedisNode)
    forkserver = await lab.forkserver()
    delays = {
        kind: await asyncio.gather(
            *(_delay(forkserver, node, url, _WaitTrial(*kind, number)) for number in range(trials))
        )
        for kind in kinds
    }
    return Finding(
        figures=[_figure(how, count, delays[how, count]) for how, count in kinds],
        differs=[
            "Redisson was not run: its figure is from its documentation, and is a setting there.",
            "The waiters of one process die together, as they do when a process is killed.",
            "Ours is the delay between the holder's release and the next living waiter's grant, at a TTL of "
            f"{TTL:g} s and with up to {max(COUNTS)} waiters; trials run at the same time on one machine.",
        ],
    )


@dataclass(frozen=True, slots=True)
class _WaitTrial:
    how: str
    count: int
    number: int

    @property
    def key(self) -> str:
        return f"dead waiters {self.count} {self.how} {self.number}"


async def _delay(forkserver: Forkserver, node: RedisNode, url: str, trial: _WaitTrial) -> float:
    """Seconds from the holder's release to the grant of the waiter behind those that died.

    :raises LockError: the lock server failed.
    """
    journal = FaultJournal(now())
    async with contextlib.AsyncExitStack() as stack:
        holder = await stack.enter_async_context(asyncdlock.connect(url))
        survivor = await stack.enter_async_context(asyncdlock.connect(url))
        handle = await holder.acquire(trial.key, ttl=TTL)
        spec = {"url": url, "key": trial.key, "count": trial.count, "ttl": TTL}
        doomed = await stack.enter_async_context(
            forkserver.participant(trial.key, wait_in_line, spec, lambda event: None)
        )
        await _until_waiting(node, trial.key, trial.count)
        waiting = asyncio.create_task(survivor.acquire(trial.key, ttl=TTL))
        try:
            await _until_waiting(node, trial.key, trial.count + 1)
            if trial.how == "killed":
                kill_process(journal, doomed.pid)
                await doomed.ended()
            else:
                await stack.enter_async_context(frozen_process(journal, doomed.pid))
            began = time.monotonic()
            await handle.release()
            granted = await waiting
            delay = time.monotonic() - began
            await granted.release()
            return delay
        finally:
            waiting.cancel()
            await asyncio.wait([waiting])
            doomed.kill()


async def _until_waiting(node: RedisNode, key: str, count: int) -> None:
    queue = companion("queue", key)
    await node.until(lambda: _has(node, queue, count), f"{count} waiters in {queue}")


async def _has(node: RedisNode, queue: str, count: int) -> bool:
    return bool(await node.command("ZCARD", queue) == count)


def wait_in_line(spec: Mapping[str, Any], channel: Channel) -> None:
    """The process that is to die: waits for the lock, with several tasks."""
    uvloop.run(_wait_in_line(spec))


async def _wait_in_line(spec: Mapping[str, Any]) -> None:
    async with asyncdlock.connect(spec["url"]) as client:
        waiters = [
            asyncio.create_task(client.acquire(spec["key"], ttl=spec["ttl"])) for _ in range(spec["count"])
        ]
        await asyncio.wait(waiters)


def _figure(how: str, count: int, delays: Sequence[float]) -> Figure:
    elsewhere = ELSEWHERE * count
    late = sum(delay >= elsewhere for delay in delays)
    return Figure(
        name=f"{count} waiters {how}",
        events=late,
        trials=len(delays),
        what=f"took {elsewhere:g} s or longer",
        detail=f"median {statistics.median(delays):.3f} s, longest {max(delays):.3f} s",
        holds=not late,
    )
