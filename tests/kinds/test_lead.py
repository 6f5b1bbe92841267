"""lead(): one leader at a time, term after term; the end of a term ends its body and nothing else."""

import asyncio

import pytest

import asyncdlock
from harness import servers
from tests.contract.fixtures import Claims, Connect, until
from tests.contract.test_hold import forever
from tests.contract.test_lease import take_away


async def test_one_leads_at_a_time_and_terms_rise(connect: Connect, key: str, claims: Claims) -> None:
    leading: list[int] = []
    terms: list[int] = []

    async def candidate(client: asyncdlock.LockClient) -> None:
        served = 0
        async for term in client.lead(key):
            async with term as handle:
                assert (term.key, term.fence) == (key, handle.fence)
                leading.append(term.fence)
                assert len(leading) == 1
                await asyncio.sleep(0.01)
                handle.check()
                leading.clear()
                terms.append(term.fence)
                served += 1
                if served == 3:
                    break

    async with asyncio.timeout(60.0), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(candidate(connect()))
    assert len(terms) == 9
    assert terms == sorted(set(terms))
    assert await claims() == []


async def test_a_lost_term_ends_its_body_and_the_next_campaign_begins(
    connect: Connect, key: str, ttl: float, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    fences: list[int] = []
    cancelled = 0
    async with asyncio.timeout(120.0):
        async for term in client.lead(key, ttl=ttl):
            async with term as handle:
                fences.append(term.fence)
                if len(fences) == 3:
                    break
                await take_away(handle, client)
                try:
                    await forever()
                except asyncio.CancelledError:
                    cancelled += 1
                    assert not handle.held
                    raise
    assert cancelled == 2
    assert fences == sorted(set(fences))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert caplog.text.count("a term ended") == 2


async def test_another_takes_over_from_a_leader_that_lost_its_term(
    connect: Connect, key: str, ttl: float
) -> None:
    one, two = connect(), connect()
    first = anext(aiter(one.lead(key, ttl=ttl)))
    async with await first as leading:
        successor = asyncio.ensure_future(anext(aiter(two.lead(key, ttl=ttl))))
        await asyncio.sleep(0.05)
        assert not successor.done()
        await take_away(leading, one)
        async with asyncio.timeout(60.0), await successor as next_one:
            assert next_one.fence > leading.fence
            next_one.check()


async def test_the_callers_cancellation_and_the_bodys_errors_end_the_leadership(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async for term in locks.lead(key):
            async with term:
                entered.set()
                await forever()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ValueError, match="mine"):
        async for term in locks.lead(key):
            async with term:
                raise ValueError("mine")
    await locks.aclose()
    assert await claims() == []


async def test_a_candidate_that_gives_up_leaves_nothing(connect: Connect, key: str, claims: Claims) -> None:
    one, two = connect(), connect()
    async with one.hold(key):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(aiter(two.lead(key)))
        await two.aclose()
        assert len(await claims()) == 1


async def test_a_term_is_entered_once_and_not_passed_over(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    terms = locks.lead(key)
    term = await anext(terms)
    with pytest.raises(asyncdlock.LockError, match="was not used: enter each one with `async with`"):
        await anext(terms)
    assert await claims() == []
    async with await anext(locks.lead(key)) as handle:
        assert handle.fence > term.fence
    entered = await anext(locks.lead(key))
    async with entered:
        with pytest.raises(asyncdlock.LockError, match="was entered before"):
            async with entered:
                pytest.fail("two bodies in one term")


async def test_what_cannot_be_a_key_or_a_ttl_is_refused(locks: asyncdlock.LockClient, key: str) -> None:
    with pytest.raises(asyncdlock.InvalidKey):
        await anext(locks.lead(""))
    with pytest.raises(ValueError, match="ttl"):
        await anext(locks.lead(key, ttl=0.0))


async def test_a_campaign_outlasts_a_server_that_is_away(
    redis_server: servers.RedisNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncdlock.connect(f"redis://{redis_server.address}?request_timeout=0.5") as locks:
        terms: list[int] = []
        async with asyncio.timeout(120.0):
            async for term in locks.lead("k", ttl=1.0):
                async with term:
                    terms.append(term.fence)
                    if len(terms) == 2:
                        break
                    redis_server.pause()
                    try:
                        await forever()
                    finally:
                        asyncio.get_running_loop().call_later(2.0, redis_server.resume)
        await until(lambda: "a term ended" in caplog.text)
        assert terms == sorted(set(terms))
