"""The main flows where `create_task` runs the task at once: `asyncio.eager_task_factory` of Python 3.12."""

import asyncio

import pytest

import asyncdlock
from tests.conftest import EAGER_TASKS, eager_task
from tests.contract.cases import Case
from tests.contract.fixtures import Connect, until
from tests.contract.fixtures import case as case
from tests.contract.fixtures import connect as connect
from tests.contract.fixtures import locks as locks
from tests.contract.fixtures import ttl as ttl
from tests.contract.fixtures import url as url

pytestmark = pytest.mark.skipif(not EAGER_TASKS, reason="eager tasks came with Python 3.12")


@pytest.fixture(autouse=True)
async def _eager_tasks() -> None:
    asyncio.get_running_loop().set_task_factory(eager_task)


async def test_a_crowd_takes_turns(case: Case, connect: Connect, key: str) -> None:
    clients = [connect(), connect()]
    inside, fences = 0, []

    async def work(client: asyncdlock.LockClient) -> None:
        nonlocal inside
        async with client.hold(key, timeout=120.0) as handle:
            assert inside == 0
            inside += 1
            fences.append(handle.fence)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.timeout(120.0), asyncio.TaskGroup() as group:
        for number in range(min(case.crowd, 20)):
            group.create_task(work(clients[number % 2]))
    assert fences == sorted(set(fences))


async def test_a_lease_is_renewed_and_its_loss_noticed(
    connect: Connect, locks: asyncdlock.LockClient, key: str, ttl: float
) -> None:
    handle = await locks.acquire(key, ttl=ttl)
    end = handle.expires_at
    await until(lambda: handle.expires_at > end or not handle.held)
    watcher = asyncio.create_task(handle.wait_lost())
    await locks._backend.release(handle._holding.grant.claim)
    async with asyncio.timeout(60.0):
        assert await watcher is True
    async with connect().hold(key, timeout=60.0) as other:
        assert other.fence > handle.fence


async def test_cancelling_and_closing_leave_nothing(connect: Connect, key: str) -> None:
    holder, client = connect(), connect()
    async with holder.hold(key, ttl=60.0):
        waiting = [asyncio.create_task(client.acquire(key)) for _ in range(5)]
        waiting[0].cancel()
        await asyncio.sleep(0.05)
        await client.aclose()
        await asyncio.wait(waiting)
        assert waiting[0].cancelled()
        for task in waiting[1:]:
            with pytest.raises(asyncdlock.LockError, match="closed"):
                await task
        assert await connect().try_acquire(key) is None
    again = await connect().acquire(key, timeout=60.0)
    assert await again.release()
