"""Strict FIFO: Redis's queue decides, nobody overtakes, nobody starves, fences rise in order of grant."""

import asyncio

import asyncdlock
from asyncdlock import Handle, LockClient
from asyncdlock.types import Claim
from harness.faults import open_link
from harness.servers import RedisNode
from tests.redis_queue.contender import Contender
from tests.redis_queue.support import (
    PATIENT,
    STRANGER,
    backend_of,
    eventually,
    fifo,
    hold_in_turn,
    queue_log,
    until_clean,
    until_waiting,
    waiters,
    waiting,
)


async def test_waiters_of_several_clients_are_granted_in_the_order_of_the_queue(node: RedisNode) -> None:
    clients = [fifo(node) for _ in range(4)]
    blocker = await clients[0].acquire("hot")
    granted: list[Handle] = []

    async def contend(client: LockClient) -> None:
        async with client.hold("hot") as handle:
            granted.append(handle)
            await asyncio.sleep(0)

    tasks = []
    for number in range(200):
        tasks.append(asyncio.create_task(contend(clients[number % 4])))
        if number % 7 == 0:
            await asyncio.sleep(0)  # mix how the clients' requests reach the server
    queued = await until_waiting(node, "hot", 200)
    await blocker.release()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENT)
    assert [handle.owner for handle in granted] == queued, "granted in the order of the queue"
    fences = [blocker.fence, *(handle.fence for handle in granted)]
    assert fences == list(range(fences[0], fences[0] + 201)), "one fence each, in order of grant"
    for client in clients:
        await client.aclose()
    await until_clean(node)


async def test_waiters_of_several_processes_are_granted_in_the_order_of_the_queue(node: RedisNode) -> None:
    async with fifo(node) as client, Contender.several(3, node, "hot", waiters=40) as processes:
        blocker = await client.acquire("hot")
        arrived = 0
        for _ in range(8):
            for process in processes:
                process.go(5)
                arrived += 5
                queued = await until_waiting(node, "hot", arrived)
        await blocker.release()
        for process in processes:
            await process.done()
        grants = sorted((grant for process in processes for grant in process.grants), key=lambda g: g.at)
        assert [grant.owner for grant in grants] == queued
        fences = [grant.fence for grant in grants]
        assert fences == list(range(blocker.fence + 1, blocker.fence + 121))


async def test_nobody_overtakes_or_starves_while_processes_come_again_and_again(one_node: RedisNode) -> None:
    """Judged by the server's own log of its queue: every grant went to the head of the queue at that time."""
    async with (
        queue_log(one_node, "hot") as log,
        Contender.several(3, one_node, "hot", waiters=10, rounds=15) as processes,
    ):
        for process in processes:
            process.go()
        for process in processes:
            await process.done()
        await until_clean(one_node)
    grants = sorted((grant for process in processes for grant in process.grants), key=lambda g: g.at)
    assert len(grants) == 3 * 10 * 15, "everybody had every turn"
    assert [grant.owner for grant in grants] == log.granted, "who holds is who was granted, in that order"
    assert sorted({grant.fence for grant in grants}) == [grant.fence for grant in grants]
    queue: list[str] = []
    for event, owner in log.events:
        if event == "joined":
            queue.append(owner)
        elif queue and queue[0] == owner:
            queue.pop(0)
        else:
            assert not queue, f"{owner} overtook {len(queue)} waiters"
    assert not queue, "nobody starved"
    assert await waiting(one_node, "hot") == []


async def test_a_request_to_join_that_is_repeated_keeps_its_place(node: RedisNode) -> None:
    """As the wire does when the reply to the first was lost with its connection."""
    async with fifo(node) as client:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 3) as tasks:
            owners = await until_waiting(node, "k", 3)
            queue = backend_of(client)._queue
            place, *_ = await queue.acquire(Claim("k", owners[0], 10.0), join=True)
            assert place == int(await node.command("ZSCORE", "queue:{k}", f"{owners[0]} 10000 1"))
            assert await waiting(node, "k") == owners
            await node.command("DEL", "k")
            await hold_in_turn(tasks)
        await until_clean(node)


async def test_a_process_that_waits_says_again_and_again_that_it_lives(node: RedisNode) -> None:
    """Those that join a hot key do not repeat what was said just now; the regular looks do."""
    async with fifo(node, patience=0.5) as client:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 2) as tasks:
            owners = await until_waiting(node, "k", 2)
            session = Claim("k", owners[0], 10.0).session
            said = int(await node.command("HGET", "sessions:{k}", session))

            async def said_again() -> bool:
                return int(await node.command("HGET", "sessions:{k}", session)) > said + 500

            # After a minute of silence the server would forget the queue, and all would join again.
            await eventually(said_again, "the process said so for longer than its patience", within=40.0)
            await node.command("DEL", "k")
            await hold_in_turn(tasks)
        await until_clean(node)


async def test_nobody_overtakes_a_task_that_begins_to_listen(node: RedisNode) -> None:
    """The first that has to wait asks twice, with a SUBSCRIBE between; those after it ask once."""
    async with (
        open_link(node.address) as link,
        fifo(node) as holding,
        asyncdlock.connect(f"redis-queue://{link.address}/0", local_handoffs=0) as client,
    ):
        await (await client.acquire("warm-up")).release()
        holder = await holding.acquire("k", ttl=600.0)
        link.lag(0.04)
        tasks: list[asyncio.Task[asyncdlock.Handle]] = []
        order: list[int] = []

        async def turn(number: int) -> None:
            handle = await tasks[number]
            order.append(number)
            await handle.release()

        for _ in range(6):
            tasks.append(asyncio.create_task(client.acquire("k", ttl=600.0)))
            await asyncio.sleep(0.03)
        await until_waiting(node, "k", 6)
        link.mend()
        await holder.release()
        await asyncio.wait_for(asyncio.gather(*map(turn, range(6))), PATIENT)
        assert order == [0, 1, 2, 3, 4, 5]


async def test_nobody_overtakes_those_who_wait_for_their_turn_to_ask(node: RedisNode) -> None:
    """Who comes in the very moment in which the client begins to hear messages goes behind them."""
    async with fifo(node) as holding, fifo(node) as client:
        await (await client.acquire("warm-up")).release()
        holder = await holding.acquire("k", ttl=600.0)
        tasks = [asyncio.create_task(client.acquire("k", ttl=600.0)) for _ in range(4)]
        async with asyncio.timeout(PATIENT):
            while client._backend._messages._channel is None:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        tasks.append(asyncio.create_task(client.acquire("k", ttl=600.0)))
        await until_waiting(node, "k", 5)
        await holder.release()
        fences = []
        for task in tasks:
            handle = await asyncio.wait_for(task, PATIENT)
            fences.append(handle.fence)
            await handle.release()
        assert fences == sorted(fences)


async def test_who_is_cut_off_when_the_lock_is_passed_on_is_passed_over_once(node: RedisNode) -> None:
    """Nobody can be told at that moment: its waiters queue again behind those who wait then, in order."""
    async with (
        open_link(node.address) as link,
        fifo(node) as holding,
        fifo(node) as other,
        asyncdlock.connect(f"redis-queue://{link.address}/0", local_handoffs=0) as client,
    ):
        holder = await holding.acquire("k", ttl=600.0)
        async with waiters(client, "k", 3, ttl=600.0) as cut, waiters(other, "k", 3, ttl=600.0) as theirs:
            await until_waiting(node, "k", 6)
            link.hold()  # what reconnects waits
            link.break_off()

            async def unheard() -> bool:
                channels = await node.command("PUBSUB", "CHANNELS", "asyncdlock:*")
                return len(channels) == 1

            await eventually(unheard, "the loss of the connection")
            await holder.release()
            first = await asyncio.wait_for(theirs[0], PATIENT)
            link.mend()
            await until_waiting(node, "k", 5)
            await first.release()
            served = await hold_in_turn([*theirs[1:], *cut])
            assert [handle.owner for handle in served] == [
                task.result().owner for task in (*theirs[1:], *cut)
            ]
