"""aclose(): what is held is given back, who waits is told, nothing runs on."""

import asyncio

import pytest

import asyncdlock
from tests.contract.cases import Case
from tests.contract.fixtures import Claims, Connect, until


async def test_closing_gives_back_what_is_held(connect: Connect, key: str, claims: Claims) -> None:
    client = connect()
    handle = await client.acquire(key, ttl=60.0)
    bare = await client.acquire(f"{key}-2", ttl=60.0, renew=False)
    await client.aclose()
    assert await claims() == []
    for closed in (handle, bare):
        assert not closed.held
        with pytest.raises(asyncdlock.LockLost, match="closed"):
            closed.check()
        with pytest.raises(asyncdlock.LockLost, match="closed"):
            await closed.renew()
        assert await closed.release() is False
    other = connect()
    assert await (await other.acquire(f"{key}-2", timeout=30.0)).release()


async def test_closing_tells_those_who_wait(connect: Connect, key: str, claims: Claims) -> None:
    holder, client = connect(), connect()
    held = await holder.acquire(key, ttl=60.0)
    waiting = [asyncio.create_task(client.acquire(key)) for _ in range(3)]
    waiting.append(asyncio.create_task(client.acquire(key, timeout=3600.0)))
    async with asyncio.timeout(30.0):
        await asyncio.sleep(0.05)
        await client.aclose()
        await asyncio.wait(waiting)
    for task in waiting:
        assert not task.cancelled(), "nobody cancelled that task"
        with pytest.raises(asyncdlock.LockError, match="closed"):
            await task
    assert len(await claims()) == 1
    assert await held.release()
    assert await claims() == []


async def test_closing_with_a_queue_behind_a_lock_of_its_own(
    case: Case, connect: Connect, key: str, claims: Claims
) -> None:
    """No waiter of the closing client gets the lock that the closing client gives back."""
    client = connect()
    handle = await client.acquire(key, ttl=60.0)
    waiting = [asyncio.create_task(client.acquire(key)) for _ in range(20)]
    await asyncio.sleep(0.05)
    await client.aclose()
    done, late = await asyncio.wait(waiting, timeout=30.0)
    assert not late
    for task in done:
        with pytest.raises(asyncdlock.LockError):
            await task
    assert not handle.held
    assert await claims() == []


async def test_closing_ends_the_body_of_a_hold(connect: Connect, key: str, claims: Claims) -> None:
    client = connect()
    entered = asyncio.Event()

    async def work() -> None:
        async with client.hold(key, ttl=60.0):
            entered.set()
            await asyncio.sleep(3600.0)

    task = asyncio.create_task(work())
    await entered.wait()
    await client.aclose()
    with pytest.raises(asyncdlock.LockLost, match="closed"):
        await task
    assert await claims() == []


async def test_a_callers_cancellation_during_closing_stays_a_cancellation(connect: Connect, key: str) -> None:
    holder, client = connect(), connect()
    async with holder.hold(key):
        task = asyncio.create_task(client.acquire(key))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(client.aclose())
        while not client._core.closed:  # an eager task has come so far already
            await asyncio.sleep(0)
        task.cancel()
        await closing
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_closed_client_refuses_work(connect: Connect, key: str) -> None:
    client = connect()
    await (await client.acquire(key)).release()
    await client.aclose()
    await client.aclose()
    for call in (client.acquire, client.try_acquire):
        with pytest.raises(asyncdlock.LockError, match="closed"):
            await call(key)
    with pytest.raises(asyncdlock.LockError, match="closed"):
        async with client.hold(key):
            pytest.fail("the body ran")
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await client.raise_fence(key, above=1)


async def test_a_client_that_was_never_used_closes(connect: Connect) -> None:
    client = connect()
    await client.aclose()
    assert client._backend.commands == 0


async def test_a_client_is_an_async_context_manager(connect: Connect, key: str, claims: Claims) -> None:
    async with connect() as client:
        handle = await client.acquire(key, ttl=60.0)
    assert not handle.held
    assert await claims() == []


async def test_a_cancelled_close_goes_on(connect: Connect, key: str, claims: Claims) -> None:
    client = connect()
    await client.acquire(key, ttl=60.0)
    closing = asyncio.create_task(client.aclose())
    while not client._core.closed:
        await asyncio.sleep(0)
    # An eager task that need not wait for a server has come to its end already.
    eager = asyncio.get_running_loop().get_task_factory() is not None
    assert closing.cancel() or (eager and client._backend.name == "memory")
    await asyncio.wait([closing])
    assert closing.cancelled() or eager
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await client.acquire(key)

    async def given_back() -> bool:
        return await claims() == []

    await until(given_back)
    # A second call waits for what the first began.
    await client.aclose()


async def test_closing_while_a_release_is_under_way_loses_nothing(
    connect: Connect, key: str, claims: Claims
) -> None:
    client = connect()
    handles = [await client.acquire(name, ttl=60.0) for name in (key, f"{key}-2")]
    releasing = [asyncio.create_task(handle.release()) for handle in handles]
    await asyncio.sleep(0)
    await client.aclose()
    await asyncio.gather(*releasing)
    assert await claims() == []
