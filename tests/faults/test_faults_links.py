"""Links: bytes pass, are held, lost or late, in one direction or both, and connections survive or break."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from harness import servers
from harness.faults import FaultJournal, Link, Way, delay, open_link, partition
from harness.load.clock import now

PATIENCE = 30.0


@contextlib.asynccontextmanager
async def _through(link: Link) -> AsyncIterator[Redis]:
    """A client with one connection that goes through the link."""
    host, _, port = link.address.partition(":")
    async with Redis(
        host=host,
        port=int(port),
        single_connection_client=True,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        protocol=2,
    ) as client:
        await client.ping()
        yield client


async def _until(node: servers.RedisNode, key: str, value: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await node.command("GET", key) != value:
            await asyncio.sleep(0.01)


@pytest.fixture
async def link(redis_server: servers.RedisNode) -> AsyncIterator[Link]:
    async with open_link(redis_server.address, name="A") as link:
        yield link


async def test_bytes_pass_both_ways_also_many(link: Link) -> None:
    async with _through(link) as client:
        value = "x" * 3_000_000
        await client.set("k", value)
        assert await client.get("k") == value
        assert link.bytes_seen(Way.TO_SERVER) > len(value)
        assert link.bytes_seen(Way.TO_CLIENT) > len(value)


async def test_a_partition_holds_everything_back_and_then_delivers_it(
    redis_server: servers.RedisNode, link: Link
) -> None:
    journal = FaultJournal(now())
    async with _through(link) as client:
        async with partition(journal, [link]):
            asked = asyncio.ensure_future(client.set("k", "v"))
            await asyncio.sleep(0.2)
            assert not asked.done()
            assert await redis_server.command("GET", "k") is None
        assert await asked
        assert await redis_server.command("GET", "k") == "v"
    assert journal.faults[0].details == {"who": "A"}


async def test_a_request_is_applied_while_its_reply_is_held(
    redis_server: servers.RedisNode, link: Link
) -> None:
    journal = FaultJournal(now())
    async with _through(link) as client:
        async with partition(journal, [link], Way.TO_CLIENT):
            asked = asyncio.ensure_future(client.set("k", "v"))
            await _until(redis_server, "k", "v")
            await asyncio.sleep(0.1)
            assert not asked.done()
        assert await asked
    assert journal.faults[0].details == {"who": "A", "way": "to client"}


async def test_a_request_is_applied_and_its_reply_is_lost_with_the_connection(
    redis_server: servers.RedisNode, link: Link
) -> None:
    async with _through(link) as client:
        async with partition(FaultJournal(0), [link], Way.TO_CLIENT, lose=True):
            asked = asyncio.ensure_future(client.set("k", "v"))
            await _until(redis_server, "k", "v")
        with pytest.raises(RedisConnectionError):
            await asked
    async with _through(link) as again:
        assert await again.get("k") == "v"


async def test_a_lost_request_is_never_applied(redis_server: servers.RedisNode, link: Link) -> None:
    async with _through(link) as client:
        seen = link.bytes_seen(Way.TO_SERVER)
        async with partition(FaultJournal(0), [link], Way.TO_SERVER, lose=True):
            asked = asyncio.ensure_future(client.set("k", "v"))
            await link.until_more_than(seen, Way.TO_SERVER)
        with pytest.raises(RedisConnectionError):
            await asked
    assert await redis_server.command("GET", "k") is None


async def test_connections_that_lost_nothing_survive_a_lossy_partition(link: Link) -> None:
    async with _through(link) as client:
        async with partition(FaultJournal(0), [link], lose=True):
            await asyncio.sleep(0.05)
        assert await client.ping()


async def test_a_delay_makes_every_piece_late_and_keeps_their_order(link: Link) -> None:
    journal = FaultJournal(now())
    async with _through(link) as client:
        async with delay(journal, [link], 0.2, Way.TO_CLIENT):
            began = time.monotonic()
            for number in range(3):
                await client.rpush("k", number)
            assert time.monotonic() - began >= 0.6
        began = time.monotonic()
        assert await client.lrange("k", 0, -1) == ["0", "1", "2"]
    assert journal.faults[0].details["seconds"] == 0.2


async def test_links_of_two_clients_are_cut_one_by_one(redis_server: servers.RedisNode, link: Link) -> None:
    async with open_link(redis_server.address, name="B") as other:
        async with _through(link) as cut, _through(other) as well:
            async with partition(FaultJournal(0), [link]):
                asked = asyncio.ensure_future(cut.ping())
                assert await well.ping()
                await asyncio.sleep(0.05)
                assert not asked.done()
            assert await asked


async def test_a_connection_made_in_a_partition_works_when_it_heals(link: Link) -> None:
    async with partition(FaultJournal(0), [link]):
        connecting = asyncio.ensure_future(_ping(link))
        await asyncio.sleep(0.1)
        assert not connecting.done()
    assert await connecting


async def _ping(link: Link) -> bool:
    async with _through(link) as client:
        return bool(await client.ping())


async def test_a_broken_off_connection_is_an_error_and_the_next_one_works(link: Link) -> None:
    async with _through(link) as client:
        link.break_off()
        with pytest.raises(RedisConnectionError):
            await client.ping()
    assert await _ping(link)


async def test_a_dead_server_looks_dead_through_a_link(redis_server: servers.RedisNode, link: Link) -> None:
    redis_server.kill()
    host, _, port = link.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_a_fault_can_begin_at_an_exact_message(redis_server: servers.RedisNode, link: Link) -> None:
    def hold_the_answer_to_incr(way: Way, data: bytes) -> None:
        if way is Way.TO_SERVER and b"INCR" in data:
            link.hold(Way.TO_CLIENT)

    async with _through(link) as client:
        link.watch = hold_the_answer_to_incr
        assert await client.set("k", "1")
        asked = asyncio.ensure_future(client.incr("k"))
        await _until(redis_server, "k", "2")
        assert not asked.done()
        link.mend()
        assert await asked == 2


async def test_a_client_that_hung_up_is_counted_no_longer_although_its_server_keeps_the_connection() -> None:
    """ZooKeeper never closes some connections that come while it starts."""
    heard_the_end = asyncio.Event()

    async def keeps_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        heard_the_end.set()
        kept.append(writer)

    kept: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(keeps_it, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with open_link(f"127.0.0.1:{port}") as link:
            _, client = await asyncio.open_connection("127.0.0.1", link.port)
            client.write(b"hello")
            await link.until_more_than(4, Way.TO_SERVER)
            assert link.clients == 1
            client.close()
            await asyncio.wait_for(heard_the_end.wait(), PATIENCE)
            assert link.clients == 0
        for writer in kept:
            writer.close()
