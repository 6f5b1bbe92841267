"""python -m bench.kinds: shared locks and semaphores on Redis beside peers; writes bench/results/.

Sixteen at a time on one key: readers, who all hold it at once, and contenders for four permits. A peer
without asyncio runs in threads. Interleaved rounds in one process on one server; ratios are what counts.
"""

import argparse
import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import redis
import uvloop

import asyncdlock
from bench.peers import say
from bench.save import add_output, show
from bench.surroundings import describe, in_words
from harness import servers

_AT_A_TIME = 16
_PERMITS = 4
_OURS = "asyncdlock"

Subject = Callable[[str, float], Awaitable[int]]


async def _in_tasks(cycle: Callable[[], Awaitable[None]], seconds: float) -> int:
    """Cycles that sixteen tasks do in this time."""
    done = 0
    end = time.monotonic() + seconds

    async def work() -> None:
        nonlocal done
        while time.monotonic() < end:
            await cycle()
            done += 1

    await asyncio.gather(*(work() for _ in range(_AT_A_TIME)))
    return done


async def _in_threads(new: Callable[[], AbstractContextManager[object]], seconds: float) -> int:
    """Cycles that sixteen threads do in this time, each with a lock object of its own."""
    counts: list[int] = []
    end = time.monotonic() + seconds

    def work() -> None:
        lock, done = new(), 0
        while time.monotonic() < end:
            with lock:
                done += 1
        counts.append(done)

    threads = [threading.Thread(target=work) for _ in range(_AT_A_TIME)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    return sum(counts)


async def our_readers(url: str, seconds: float) -> int:
    async with asyncdlock.connect(url.replace("redis://", "redis-queue://")) as locks:

        async def cycle() -> None:
            await (await locks.acquire("readers", shared=True)).release()

        return await _in_tasks(cycle, seconds)


class _Reader(AbstractContextManager[None]):
    def __init__(self, url: str) -> None:
        from redis_rw_lock import RWLock  # of the bench extra, as the others below

        self._lock = RWLock(redis.Redis.from_url(url), "rw", RWLock.READ, expire=60)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def rw_lock_readers(url: str, seconds: float) -> int:
    return await _in_threads(lambda: _Reader(url), seconds)


async def our_permits(url: str, seconds: float) -> int:
    async with asyncdlock.connect(url.replace("redis://", "redis-queue://")) as locks:
        pool = locks.semaphore("pool", permits=_PERMITS)

        async def cycle() -> None:
            await (await pool.acquire()).release()

        return await _in_tasks(cycle, seconds)


async def limiter_permits(url: str, seconds: float) -> int:
    from self_limiters import Semaphore

    pool = Semaphore(name="limiter", capacity=_PERMITS, max_sleep=60, redis_url=url)

    async def cycle() -> None:
        async with pool:
            pass

    return await _in_tasks(cycle, seconds)


async def redis_semaphore_permits(url: str, seconds: float) -> int:
    from redis_semaphore import Semaphore

    return await _in_threads(
        lambda: Semaphore(redis.Redis.from_url(url), count=_PERMITS, namespace="sem", blocking=True), seconds
    )


WORKLOADS: Mapping[str, Mapping[str, Subject]] = {
    f"{_AT_A_TIME} readers of one key": {_OURS: our_readers, "redis-rw-lock": rw_lock_readers},
    f"{_AT_A_TIME} contenders for {_PERMITS} permits": {
        _OURS: our_permits,
        "self-limiters": limiter_permits,
        "redis-semaphore": redis_semaphore_permits,
    },
}


async def compare(rounds: int, seconds: float) -> dict[str, Any]:
    """Holds per second of every subject; a round of one is followed by a round of the next."""
    where = describe()
    measured: dict[str, dict[str, list[float]]] = {name: {} for name in WORKLOADS}
    async with servers.redis() as node:
        for number in range(rounds):
            for workload, subjects in WORKLOADS.items():
                for name, subject in subjects.items():
                    say(f"{workload}: round {number + 1} of {rounds}: {name}")
                    holds = await subject(node.url, seconds)
                    measured[workload].setdefault(name, []).append(holds / seconds)
    return {
        "command": " ".join(["python -m bench.kinds", *sys.argv[1:]]),
        "environment": where,
        "rounds": rounds,
        "seconds_per_round": seconds,
        "holds_per_s": {
            workload: {name: statistics.median(rates) for name, rates in subjects.items()}
            for workload, subjects in measured.items()
        },
    }


def markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    yield "# Shared locks and semaphores on Redis"
    yield ""
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']:g} s"
    yield f"`{outcome['command']}`: {rounds}, interleaved. {in_words(outcome['environment'])}"
    for workload, subjects in outcome["holds_per_s"].items():
        yield from ("", f"## {workload}", "", "| | holds/s | asyncdlock is |", "|---|---|---|")
        for name, rate in sorted(subjects.items(), key=lambda item: -item[1]):
            yield f"| {name} | {rate:,.0f} | {subjects[_OURS] / rate if rate else float('inf'):.1f}× |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kinds", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    add_output(parser)
    asked = parser.parse_args()
    outcome = uvloop.run(compare(asked.rounds, asked.seconds))
    show("kinds", outcome, markdown(outcome), asked)


if __name__ == "__main__":
    main()
