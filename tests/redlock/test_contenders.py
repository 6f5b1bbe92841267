"""redlock://: a client's own contenders queue in it, and what keeps clients out of each other's way."""

import asyncio

import asyncdlock
from asyncdlock._inside import backend_of
from asyncdlock.backends.redlock import RedlockBackend
from asyncdlock.backends.redlock.pauses import Pauses, RoundTrip
from harness import servers
from tests.redlock.conftest import PATIENCE, eventually, nobody_holds, owners, warm

LONG = 60.0


async def test_own_contenders_are_served_in_order_and_ask_the_nodes_one_at_a_time(key: str) -> None:
    order: list[int] = []
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(nodes.url) as locks:
        await warm(locks, nodes)
        first = await locks.acquire(key, ttl=LONG)
        before = backend_of(locks).commands

        async def contend(number: int) -> None:
            async with locks.hold(key, ttl=LONG, timeout=PATIENCE):
                order.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(contend(number))
                await asyncio.sleep(0)
            assert backend_of(locks).commands == before, "whoever waits here has asked a node"
            await first.release()
        # Three nodes, a request to take and one to give back each: nobody asked in vain.
        assert backend_of(locks).commands - before == 3 * (1 + 2 * 20)
    assert order == list(range(20))


async def test_with_local_queue_off_everybody_goes_to_the_nodes(key: str) -> None:
    async with servers.redis_nodes(3) as nodes, asyncdlock.connect(f"{nodes.url}?local_queue=off") as locks:
        assert isinstance(backend_of(locks), RedlockBackend)
        await warm(locks, nodes)
        async with locks.hold(key, ttl=LONG):
            before = backend_of(locks).commands
            waiting = asyncio.create_task(locks.acquire(key, ttl=LONG))

            async def has_asked() -> bool:
                return backend_of(locks).commands > before

            await eventually(has_asked)
        handle = await asyncio.wait_for(waiting, PATIENCE)
        await handle.release()


async def test_a_client_whose_contenders_never_stop_lets_another_one_in(key: str) -> None:
    async with (
        servers.redis_nodes(3) as nodes,
        asyncdlock.connect(nodes.url) as busy,
        asyncdlock.connect(nodes.url) as other,
    ):
        await warm(busy, nodes)
        await warm(other, nodes)
        enough = asyncio.Event()

        async def contend() -> None:
            while not enough.is_set():
                async with busy.hold(key, ttl=LONG):
                    await asyncio.sleep(0.001)

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(contend())
            try:
                for _ in range(3):
                    async with other.hold(key, ttl=LONG, timeout=PATIENCE):
                        pass
            finally:
                enough.set()


async def test_whoever_waits_notices_a_release_by_looking_at_one_node_and_leaves_no_vote(key: str) -> None:
    async with (
        servers.redis_nodes(3) as nodes,
        asyncdlock.connect(nodes.url) as holding,
        asyncdlock.connect(nodes.url) as waiting,
    ):
        await warm(holding, nodes)
        await warm(waiting, nodes)
        handle = await holding.acquire(key, ttl=LONG)
        waiter = asyncio.create_task(waiting.acquire(key, ttl=LONG))
        before = backend_of(waiting).commands

        async def has_looked() -> bool:
            return backend_of(waiting).commands > before + 20

        await eventually(has_looked)
        assert await owners(nodes, key) == [handle.owner] * 3
        waiter.cancel()
        await asyncio.wait((waiter,))
        await handle.release()
        await nobody_holds(nodes, key)


def test_after_a_split_vote_contenders_part_by_round_trips_and_after_a_refusal_by_longer_pauses() -> None:
    near, far = RoundTrip(), RoundTrip()
    near.note(0.0002)
    far.note(0.02)
    assert 0.0004 <= Pauses(near).when_split() <= 0.0008
    pauses = Pauses(far)
    assert 0.04 <= pauses.when_split() <= 0.08
    assert 0.08 <= pauses.when_split() <= 0.16
    assert 0.0025 <= pauses.when_held() <= 0.005
    assert 0.04 <= pauses.when_split() <= 0.08, "another vote, another start"
    assert 0.04 <= pauses.until_look() <= 0.08
    assert 0.01 <= Pauses(near).until_look() <= 0.02
