"""hold_all(): all of several locks or none, in one order for everybody."""

import asyncio
import random
import time

import pytest

import asyncdlock
from tests.contract.cases import Case
from tests.contract.fixtures import Connect, until
from tests.contract.test_hold import forever
from tests.contract.test_lease import take_away


@pytest.fixture
def keys(key: str) -> list[str]:
    """Three of them, not in order."""
    return [f"{key}-{name}" for name in "cab"]


async def stored(case: Case, url: str, keys: list[str]) -> dict[str, int]:
    """How many claims the server has for each of the keys that have any."""
    found = {key: len(await case.claims(url, key)) for key in keys}
    return {key: count for key, count in found.items() if count}


async def test_all_are_held_in_order_each_once_and_given_back_together(
    case: Case, url: str, locks: asyncdlock.LockClient, keys: list[str]
) -> None:
    async with locks.hold_all([*keys, keys[0]], ttl=20.0, timeout=30.0) as handles:
        assert list(handles) == sorted(keys)
        for key, handle in handles.items():
            assert (handle.key, handle.ttl) == (key, 20.0)
            handle.check()
        granted = [handles[key].acquired_at for key in sorted(keys)]
        assert granted == sorted(granted)
        assert await stored(case, url, keys) == dict.fromkeys(keys, 1)
    assert not any(handle.held for handle in handles.values())
    assert await stored(case, url, keys) == {}
    async with locks.hold_all(keys, timeout=30.0) as again:
        assert all(again[key].fence > handles[key].fence for key in keys)


async def test_one_time_out_for_all_names_the_missing_key_and_leaves_none(
    case: Case, url: str, connect: Connect, keys: list[str]
) -> None:
    one, two = connect(), connect()
    await (await two.acquire(f"{keys[0]}-warm")).release()
    last = max(keys)
    async with one.hold(last):
        begun = time.monotonic()
        with pytest.raises(asyncdlock.AcquireTimeout, match=r"one of 3, .* within 0\.3 s of all") as caught:
            async with two.hold_all(keys, timeout=0.3):
                pytest.fail("the body ran without one of its locks")
        assert time.monotonic() - begun >= 0.3
        assert caught.value.key == last
        with pytest.raises(asyncdlock.AcquireTimeout):
            async with two.hold_all(keys, timeout=0):
                pytest.fail("the body ran without one of its locks")

        async def the_others_lock_alone() -> bool:
            return await stored(case, url, keys) == {last: 1}

        await until(the_others_lock_alone)  # what was waiting is taken back in the background
    assert await stored(case, url, keys) == {}


async def test_users_who_name_their_keys_in_any_order_do_not_block_each_other(
    connect: Connect, keys: list[str]
) -> None:
    clients = [connect(), connect()]
    inside: set[str] = set()
    chance = random.Random(7)

    async def use(client: asyncdlock.LockClient) -> None:
        for _ in range(3):
            some = chance.sample(keys, k=2)
            async with client.hold_all(some, timeout=120.0):
                assert not inside & set(some)
                inside.update(some)
                await asyncio.sleep(0)
                inside.difference_update(some)

    async with asyncio.timeout(120.0), asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(use(clients[number % 2]))


async def test_losing_any_of_them_ends_the_body_and_names_it(
    case: Case, url: str, locks: asyncdlock.LockClient, keys: list[str], ttl: float
) -> None:
    for lost in keys:
        with pytest.raises(asyncdlock.LockLost) as caught:
            async with locks.hold_all(keys, ttl=ttl, timeout=60.0) as handles:
                await take_away(handles[lost], locks)
                await forever()
        assert caught.value.key == lost
        assert caught.value.fence == handles[lost].fence
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
    await locks.aclose()
    assert await stored(case, url, keys) == {}


async def test_one_that_is_lost_while_the_next_is_waited_for_ends_the_wait(
    case: Case, url: str, connect: Connect, keys: list[str], ttl: float
) -> None:
    one, two = connect(), connect()
    first, last = min(keys), max(keys)
    async with one.hold(last) as blocking:

        async def enter() -> None:
            async with two.hold_all(keys, ttl=ttl, timeout=60.0):
                pytest.fail("one of the locks is held by another")

        waiting = asyncio.create_task(enter())
        async with asyncio.timeout(60.0):
            while len(await case.claims(url, last)) < 2 and len(two._core.watchdog.watched()) < 2:
                await asyncio.sleep(0.01)
        (held,) = [one for one in two._core.watchdog.watched() if one.grant.claim.key == first]
        assert await two._backend.release(held.grant.claim)
        with pytest.raises(asyncdlock.LockLost) as caught:
            async with asyncio.timeout(60.0):
                await waiting
        assert caught.value.key == first
        blocking.check()
    await two.aclose()
    assert await stored(case, url, keys) == {}


async def test_what_the_body_raises_passes_through(
    case: Case, url: str, locks: asyncdlock.LockClient, keys: list[str]
) -> None:
    for error in (ValueError("mine"), TimeoutError("mine"), asyncdlock.LockLost("of another lock")):
        with pytest.raises(type(error)) as caught:
            async with locks.hold_all(keys):
                raise error
        assert caught.value is error
    assert await stored(case, url, keys) == {}


async def test_what_cannot_be_meant_is_refused_and_nothing_is_sent(
    locks: asyncdlock.LockClient, keys: list[str]
) -> None:
    sent = locks._backend.commands
    with pytest.raises(ValueError, match="put it into a list"):
        locks.hold_all(keys[0])
    with pytest.raises(ValueError, match="at least one key"):
        locks.hold_all([])
    with pytest.raises(asyncdlock.InvalidKey):
        locks.hold_all([keys[0], ""])
    with pytest.raises(ValueError, match="timeout"):
        async with locks.hold_all(keys, timeout=-1.0):
            pytest.fail("entered")
    with pytest.raises(ValueError, match="ttl"):
        async with locks.hold_all(keys, ttl=0.0):
            pytest.fail("entered")
    assert locks._backend.commands == sent


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
async def test_the_keys_may_lie_on_different_shards_of_a_cluster(
    redis_cluster_url: str, scheme: str, keys: list[str]
) -> None:
    url = f"{scheme}://{redis_cluster_url.partition('://')[2]}"
    names = [f"{keys[0]}-{number}" for number in range(12)]  # so many hit all three shards
    async with asyncdlock.connect(url) as one, asyncdlock.connect(url) as two:
        async with one.hold_all(names, timeout=30.0) as handles:
            assert list(handles) == sorted(names)
            with pytest.raises(asyncdlock.AcquireTimeout):
                async with two.hold_all(reversed(names), timeout=0.1):
                    pytest.fail("entered")
        async with two.hold_all(names, timeout=30.0) as again:
            assert all(again[name].fence > handles[name].fence for name in names)
