"""Ten thousand acquisitions cancelled at random moments leave no lock, no task and one connection."""

import asyncio
import contextlib
import random

import pytest

import asyncdlock
from harness import servers
from tests.contract.fixtures import until

_KEYS = 20


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
async def test_ten_thousand_random_cancellations_leave_nothing(
    redis_server: servers.RedisNode, scheme: str
) -> None:
    chance = random.Random(20)
    loop = asyncio.get_running_loop()
    # Debug mode makes every task many times as expensive.
    waves, wave = (3, 200) if loop.get_debug() else (20, 500)
    tasks_before = asyncio.all_tasks()
    locks = asyncdlock.connect(f"{scheme}://{redis_server.address}")
    outcomes = {"cancelled": 0, "done": 0}

    async def contend(key: str, way: int) -> None:
        if way == 0:
            await (await locks.acquire(key)).release()
        elif way == 1:
            async with locks.hold(key) as handle:
                await asyncio.sleep(0)
                handle.check()
        elif way == 2:
            if (taken := await locks.try_acquire(key)) is not None:
                try:
                    await taken.renew()
                finally:
                    await taken.release()
        else:
            with contextlib.suppress(asyncdlock.AcquireTimeout):
                await (await locks.acquire(key, timeout=0.01)).release()

    for _ in range(waves):
        tasks = [
            asyncio.create_task(contend(f"key-{chance.randrange(_KEYS)}", chance.randrange(4)))
            for _ in range(wave)
        ]
        for task in tasks:
            loop.call_later(chance.expovariate(2.0 if loop.get_debug() else 20.0), task.cancel)
        async with asyncio.timeout(120.0):
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
            outcomes["cancelled" if task.cancelled() else "done"] += 1
    assert all(outcomes.values()), f"the mixture is too one-sided to show much: {outcomes}"

    # Clean-up goes on in the background, over the connection that is open anyway.
    await until(lambda: asyncio.all_tasks() == tasks_before)
    assert await _clients(redis_server) == 1
    left = await _locks_left(redis_server)
    assert [name for name in left if not name.startswith("client:{")] == [], (
        "beside what names the client itself"
    )
    async with locks.hold("key-0", timeout=10.0):
        pass
    await locks.aclose()
    assert await _locks_left(redis_server) == []

    async def closed() -> bool:
        return await _clients(redis_server) == 0

    await until(closed)


async def _locks_left(node: servers.RedisNode) -> list[str]:
    keys: list[str] = await node.command("KEYS", "*")
    return [key for key in keys if not key.startswith("fence:")]


async def _clients(node: servers.RedisNode) -> int:
    """Connections to the server, without the one that asks."""
    return len(str(await node.command("CLIENT", "LIST")).strip().splitlines()) - 1
