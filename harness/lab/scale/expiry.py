"""Watches a Redis lose its expired keys: counts and memory over time, and a live lock meanwhile."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import asyncdlock
from asyncdlock import LockError
from harness.history.distribution import Distribution
from harness.lab.scale.pipe import Pipe, info, open_pipe
from harness.report.latencies import figures_of
from harness.report.model import Figures

_LIVE_KEY = "live-lock"
_LIVE_EVERY = 0.005


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the server at a moment. Seconds since the watch began; bytes."""

    at: float
    keys: int
    with_ttl: int
    used_memory: int
    resident: int
    expired: int
    """Keys that the server has removed for their age since it started."""


@dataclass(slots=True)
class Watch:
    began: float = 0.0
    """On the monotonic clock."""
    samples: list[Sample] = field(default_factory=list)
    live: list[tuple[float, int]] = field(default_factory=list)
    """When, and how many nanoseconds: acquire and release of a lock that had nothing to do with it."""
    live_failures: int = 0

    def live_ms(self, start: float = 0.0, end: float = float("inf")) -> Figures:
        """Percentiles of the live lock's latency within a time."""
        return figures_of(Distribution(took for at, took in self.live if start <= at < end))

    def first(self, keys_below: int) -> float | None:
        """When fewer keys than that were left with a TTL, after the most."""
        peak = max(self.samples, key=lambda sample: sample.with_ttl, default=None)
        if peak is None:
            return None
        return next((s.at for s in self.samples if s.at > peak.at and s.with_ttl < keys_below), None)


@contextlib.asynccontextmanager
async def watching(url: str, every: float = 0.2) -> AsyncIterator[Watch]:
    """Sample the server, and use a lock on it, for the length of the block."""
    began = time.perf_counter()
    watch = Watch(began)
    async with open_pipe(url) as pipe, asyncdlock.connect(url) as locks:
        tasks = [
            asyncio.create_task(_sample(watch, pipe, began, every)),
            asyncio.create_task(_use(watch, locks, began)),
        ]
        try:
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def sample(pipe: Pipe, at: float = 0.0) -> Sample:
    memory = info(await pipe.ask("INFO", "memory"))
    stats = info(await pipe.ask("INFO", "stats"))
    space = info(await pipe.ask("INFO", "keyspace"))
    counts = dict(part.split("=", 1) for part in space.get("db0", "keys=0,expires=0").split(","))
    return Sample(
        at,
        int(counts["keys"]),
        int(counts["expires"]),
        int(memory["used_memory"]),
        int(memory["used_memory_rss"]),
        int(stats["expired_keys"]),
    )


async def _sample(watch: Watch, pipe: Pipe, began: float, every: float) -> None:
    while True:
        watch.samples.append(await sample(pipe, time.perf_counter() - began))
        await asyncio.sleep(every)


async def _use(watch: Watch, locks: asyncdlock.LockClient, began: float) -> None:
    while True:
        start = time.perf_counter_ns()
        try:
            handle = await locks.acquire(_LIVE_KEY, ttl=10.0, timeout=5.0)
            await handle.release()
        except LockError:
            watch.live_failures += 1
        else:
            watch.live.append((start / 1e9 - began, time.perf_counter_ns() - start))
        await asyncio.sleep(_LIVE_EVERY)
