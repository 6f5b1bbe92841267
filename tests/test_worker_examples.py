"""Celery, taskiq and APScheduler among the examples: real worker processes, one real Redis between them."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from celery import Celery
from taskiq.kicker import AsyncKicker
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

import asyncdlock
from harness import servers

ROOT = Path(__file__).parent.parent
PATIENCE = 120.0


@contextmanager
def working(module: str, *arguments: str, url: str) -> Iterator[None]:
    """A worker of `python -m module`, with processes of its own."""
    child = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "REDIS_URL": url, "LOCK_URL": url.replace("redis://", "redis-queue://", 1)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        child.terminate()
        assert child.wait(PATIENCE) in (0, -15)


@asynccontextmanager
async def held(url: str, key: str) -> AsyncIterator[asyncdlock.Handle]:
    """By this process, in the queue that the workers use."""
    async with asyncdlock.connect(url.replace("redis://", "redis-queue://", 1), metrics=False) as locks:
        async with locks.hold(key) as handle:
            yield handle


async def test_celery_retries_while_another_has_the_account(redis_server: servers.RedisNode) -> None:
    url = redis_server.url
    app = Celery(broker=url, backend=url)
    options = ("--concurrency=2", "--without-gossip", "--without-mingle", "--without-heartbeat")
    with working("celery", "-A", "examples.celery_app", "worker", *options, url=url):
        async with held(url, "bill:7") as ours:
            tasks = [app.send_task("examples.celery_app.bill", ["7"]) for _ in range(4)]
            async with asyncio.timeout(PATIENCE):
                while {task.state for task in tasks} != {"RETRY"}:
                    await asyncio.sleep(0.1)
            fence = ours.fence
        billed = [await asyncio.to_thread(task.get, timeout=PATIENCE) for task in tasks]
    fences = {one["fence"] for one in billed}
    assert len(fences) == 4
    assert min(fences) > fence
    app.close()


async def test_taskiq_waits_for_the_account(redis_server: servers.RedisNode) -> None:
    url = redis_server.url
    results: RedisAsyncResultBackend[dict[str, int]] = RedisAsyncResultBackend(url)
    broker = ListQueueBroker(url).with_result_backend(results)
    bill: AsyncKicker[[str], dict[str, int]] = AsyncKicker("examples.taskiq_app:bill", broker, {})
    await broker.startup()
    with working("taskiq", "worker", "examples.taskiq_app:broker", "--workers", "2", url=url):
        async with held(url, "bill:7") as ours:
            tasks = [await bill.kiq("7") for _ in range(4)]
            await waited_for(url, "bill:7")
            assert not any([await task.is_ready() for task in tasks])
            fence = ours.fence
        billed = [await task.wait_result(timeout=PATIENCE) for task in tasks]
    fences = {one.return_value["fence"] for one in billed}
    assert len(fences) == 4
    assert min(fences) > fence
    await broker.shutdown()


async def waited_for(url: str, key: str) -> None:
    async with asyncdlock.connect(url.replace("redis://", "redis-queue://", 1), metrics=False) as locks:
        async with asyncio.timeout(PATIENCE):
            while not (await locks.inspect(key)).waiters:
                await asyncio.sleep(0.05)


async def test_each_tick_of_two_schedulers_is_run_once(redis_url: str) -> None:
    replicas = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "examples/apscheduler_app.py", redis_url),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    said: list[bytes] = []

    async def listen(replica: asyncio.subprocess.Process) -> None:
        assert replica.stdout is not None
        async for line in replica.stdout:
            said.append(line)

    listeners = [asyncio.create_task(listen(replica)) for replica in replicas]
    try:
        async with asyncio.timeout(PATIENCE):
            while len(said) < 4:
                await asyncio.sleep(0.05)
    finally:
        for replica in replicas:
            replica.terminate()
            await replica.wait()
        await asyncio.gather(*listeners)
    runs = [re.fullmatch(rb"report for (\d\d:\d\d:\d\d) with fence (\d+)\n", line) for line in said]
    assert len({run[1] for run in runs if run is not None}) == len(said)
