"""A server that goes away: waiters outlast a restart, or fail clearly and leave nothing behind."""

import asyncio

import pytest

import asyncdlock
from asyncdlock import BackendUnavailable, LockClient
from asyncdlock.backends.redis.server import Server
from harness import servers
from harness.faults import Way, open_link
from harness.servers import RedisNode
from tests.redis_queue.support import (
    PATIENT,
    STRANGER,
    backend_of,
    eventually,
    fifo,
    hold_in_turn,
    until_clean,
    until_waiting,
    waiters,
)

pytestmark = pytest.mark.faults

LONG = 600.0


async def test_waiters_outlast_a_restart_without_data(node: RedisNode) -> None:
    """Lock, queue and counter are gone: everybody queues again, in the old order."""
    async with fifo(node) as holding, fifo(node) as client:
        await holding.acquire("k", ttl=60.0)
        async with waiters(client, "k", 20) as tasks:
            queued = await until_waiting(node, "k", 20)
            node.kill()
            await node.start(wipe=True)
            served = await hold_in_turn(tasks)
        assert [handle.owner for handle in served] == queued
        fences = [handle.fence for handle in served]
        assert fences == sorted(set(fences))
        await until_clean(node)


async def test_waiters_keep_their_places_over_a_restart_with_data() -> None:
    async with servers.redis(persistent=True) as node, fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k", ttl=60.0)
        async with waiters(client, "k", 20) as tasks:
            queued = await until_waiting(node, "k", 20)
            node.kill()
            await node.start()
            assert await until_waiting(node, "k", 20) == queued
            assert await holder.release(), "the holder kept its lease"
            served = await hold_in_turn(tasks)
            assert [handle.owner for handle in served] == queued
            fences = [holder.fence, *(handle.fence for handle in served)]
            assert fences == sorted(set(fences))
        await until_clean(node)


async def test_waiters_outlast_the_time_in_which_a_server_loads_its_data() -> None:
    """It is there, and answers LOADING to everything."""
    slow = {"key-load-delay": "1000", "loading-process-events-interval-bytes": "1024"}
    async with servers.redis(flavour="redis", persistent=True, config=slow) as node, fifo(node) as client:
        give_time_to_return(client, PATIENT)
        holder = await client.acquire("k", ttl=LONG)
        for first in range(0, 1000, 100):
            await node.command("MSET", *(word for i in range(first, first + 100) for word in (f"x{i}", "1")))
        await node.command("BGREWRITEAOF")  # what is loaded from it takes a millisecond a key

        async def rewritten() -> bool:
            state = await node.command("INFO", "persistence")
            return bool(state["aof_rewrites"] == 1 and not state["aof_rewrite_in_progress"])

        await eventually(rewritten, "the file that is loaded slowly")
        async with waiters(client, "k", 5, ttl=LONG) as tasks:
            queued = await until_waiting(node, "k", 5)
            node.kill()
            starting = asyncio.create_task(node.start())
            refused = await until_loading(node)
            assert b"LOADING" in refused
            await starting
            refusals = (await node.command("INFO", "errorstats"))["errorstat_LOADING"]["count"]
            assert refusals > 1, "the client was refused as well"
            assert not any(task.done() for task in tasks)
            assert await until_waiting(node, "k", 5) == queued
            assert await holder.release()
            assert [handle.owner for handle in await hold_in_turn(tasks)] == queued


def give_time_to_return(client: LockClient, seconds: float) -> None:
    """More than the two seconds that a server has, for machines on which all takes longer."""
    server = backend_of(client)._server
    assert isinstance(server, Server)
    server._patience = server.wire._reconnect_for = seconds


async def until_loading(node: RedisNode) -> bytes:
    """What a server says to a script that is starting and has its port open."""
    async with asyncio.timeout(PATIENT):
        while True:
            try:
                reader, writer = await asyncio.open_connection(node.host, node.port)
            except OSError:
                await asyncio.sleep(0.001)
                continue
            writer.write(b'EVAL "return 1" 0\r\n')
            reply = await reader.readline()
            writer.close()
            return reply


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
@pytest.mark.parametrize("verb", [b"EVALSHA", b"SUBSCRIBE"])
async def test_a_connection_that_is_cut_once_fails_no_request(
    node: RedisNode, scheme: str, verb: bytes
) -> None:
    async with (
        open_link(node.address) as link,
        fifo(node) as holding,
        asyncdlock.connect(f"{scheme}://{link.address}/0") as client,
    ):
        await (await client.acquire("warm-up")).release()
        holder = await holding.acquire("k", ttl=LONG)
        cuts: list[bytes] = []

        def cut(way: Way, data: bytes) -> None:
            if way is Way.TO_SERVER and verb in data and not cuts:
                cuts.append(data)
                link.break_off()

        link.watch = cut
        acquiring = asyncio.create_task(client.acquire("k", ttl=LONG))
        if scheme == "redis-queue":
            await until_waiting(node, "k", 1)
            assert cuts
        await holder.release()
        assert await (await asyncio.wait_for(acquiring, PATIENT)).release()


async def test_waiters_of_a_server_that_stays_away_fail_and_leave_its_queue_when_it_returns() -> None:
    async with servers.redis(persistent=True) as node, fifo(node) as client:
        await node.command("SET", "k", STRANGER)
        async with waiters(client, "k", 20, ttl=PATIENT) as tasks:
            await until_waiting(node, "k", 20)
            node.kill()
            await asyncio.wait(tasks)
            for task in tasks:
                with pytest.raises(BackendUnavailable, match="Redis cannot be reached"):
                    task.result()
            await node.start()
            await until_clean(node, but=("k",))
            await node.command("DEL", "k")
            assert await client.try_acquire("k"), "nobody is in the way"


async def test_a_server_that_cannot_be_reached_at_first_is_said_at_once(node: RedisNode) -> None:
    node.kill()
    async with fifo(node) as client:
        with pytest.raises(BackendUnavailable, match="Redis cannot be reached"):
            await client.acquire("k")
        await node.start()
        assert await (await client.acquire("k")).release(), "and the client recovers"
