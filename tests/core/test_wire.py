"""The wire on a real server: the n-th reply belongs to the n-th command, whatever is cancelled or lost."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import hiredis
import pytest
from redis.asyncio.connection import AbstractConnection, Connection

from asyncdlock.backends.redis.stream import pack
from asyncdlock.backends.redis.url import RedisURL
from asyncdlock.backends.redis.wire import Opener, Wire
from asyncdlock.errors import BackendError, BackendUnavailable
from harness import servers
from tests.contract.fixtures import until


def opener_for(url: str) -> Opener:
    return RedisURL.parse(url, {}, known={}).opener()


@pytest.fixture
async def wire(redis_server: servers.RedisNode) -> AsyncIterator[Wire]:
    """A wire to a server of this test's own."""
    opened = Wire(opener_for(redis_server.url), call_timeout=5.0)
    yield opened
    await opened.aclose()


async def connections(node: servers.RedisNode) -> int:
    """How many are open to the server, without the one that asks."""
    return len(str(await node.command("CLIENT", "LIST", "TYPE", "normal")).strip().splitlines()) - 1


Answer = Callable[[list[bytes], asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def impostor(answer: Answer) -> AsyncIterator[str]:
    """The URL of something that greets like Redis, and then answers as told."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader()
        try:
            while data := await reader.read(65536):
                parser.feed(data)
                while (words := parser.gets()) is not False:
                    if words[0] == b"HELLO":
                        writer.write(b"%1\r\n+proto\r\n:3\r\n")
                    elif words[0] == b"CLIENT":
                        writer.write(b"+OK\r\n")
                    else:
                        await answer(words, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])


def test_the_private_attributes_of_redis_py_exist() -> None:
    """`take_over` relies on them: a redis-py that renames them must fail here and not in production."""
    connection = Connection()
    assert isinstance(connection, AbstractConnection)
    assert connection._reader is None
    assert connection._writer is None


async def test_many_tasks_share_one_connection(wire: Wire, redis_server: servers.RedisNode) -> None:
    replies = await asyncio.gather(*(wire.call("ECHO", f"{n}") for n in range(2000)))
    assert replies == [f"{n}".encode() for n in range(2000)]
    assert await connections(redis_server) == 1
    assert wire.commands == 2000


async def test_a_cancelled_call_keeps_the_stream_in_step(wire: Wire) -> None:
    await wire.call("PING")
    for _ in range(20):
        tasks = [asyncio.ensure_future(wire.call("ECHO", f"{n}")) for n in range(10)]
        await asyncio.sleep(0)
        for n in (0, 3, 4, 9):
            tasks[n].cancel()
        kept = {n: await task for n, task in enumerate(tasks) if n not in (0, 3, 4, 9)}
        assert kept == {n: f"{n}".encode() for n in kept}


async def test_a_storm_of_cancellations_keeps_the_stream_in_step(
    wire: Wire, redis_server: servers.RedisNode
) -> None:
    chance = random.Random(7)
    loop = asyncio.get_running_loop()
    right = 0

    async def ask(word: str) -> None:
        nonlocal right
        assert await wire.call("ECHO", word) == word.encode()
        right += 1

    for wave in range(30):
        tasks = [asyncio.create_task(ask(f"{wave}-{n}")) for n in range(200)]
        for task in chance.sample(tasks, 100):
            loop.call_later(chance.random() * 0.01, task.cancel)
        done, _ = await asyncio.wait(tasks)
        assert [error for task in done if not task.cancelled() and (error := task.exception())] == []
    assert right >= 3000
    assert await connections(redis_server) == 1


async def test_a_cancelled_subscription_keeps_the_stream_in_step(wire: Wire) -> None:
    """Its confirmation comes as a message, and still takes the place of a reply."""
    pushed: list[Any] = []
    wire.on_push = pushed.append
    await wire.call("PING")
    for n in range(20):
        subscribing = asyncio.create_task(wire.subscribe("SUBSCRIBE", f"news-{n}"))
        await asyncio.sleep(0)
        await cancelled(subscribing)
        assert await asyncio.gather(*(wire.call("ECHO", f"{n}-{m}") for m in range(3))) == [
            f"{n}-{m}".encode() for m in range(3)
        ]
    assert pushed == []


async def test_messages_come_between_replies(wire: Wire, redis_server: servers.RedisNode) -> None:
    pushed: list[Any] = []
    wire.on_push = pushed.append
    await wire.subscribe("SUBSCRIBE", "news")
    for n in range(50):
        assert await wire.call("PUBLISH", "news", f"{n}") == 1
        assert await wire.call("ECHO", f"{n}") == f"{n}".encode()
    await until(lambda: len(pushed) == 50)
    assert [message[2] for message in pushed] == [f"{n}".encode() for n in range(50)]
    # A channel that the server takes away is a message as well, not the reply to the next command.
    wire.unsubscribe("UNSUBSCRIBE", "news")
    assert await wire.call("ECHO", "after") == b"after"
    assert len(pushed) == 50


async def test_an_error_reply_is_definite_and_harms_nobody_else(wire: Wire) -> None:
    replies = await asyncio.gather(wire.call("NOSUCH"), wire.call("ECHO", "x"), return_exceptions=True)
    bad, good = replies
    assert isinstance(bad, BackendError)
    assert bad.definite
    assert not isinstance(bad, BackendUnavailable)
    assert good == b"x"


@pytest.mark.faults
async def test_a_connection_lost_before_it_is_taken_over_is_noticed_and_let_go_of(
    redis_server: servers.RedisNode,
) -> None:
    """Not after `call_timeout`, and redis-py does not complain of a connection that nobody closed."""
    open_connection = opener_for(redis_server.url)

    async def open_and_lose() -> AbstractConnection:
        connection = await open_connection()
        await redis_server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        reader = connection._reader
        assert reader is not None
        await until(reader.at_eof)
        return connection

    wire = Wire(open_and_lose, call_timeout=600.0)
    with pytest.raises(BackendUnavailable, match="lost while it was set up") as caught:
        await wire.call("PING")
    assert caught.value.definite
    await wire.aclose()
    gc.collect()  # a ResourceWarning would come now


async def test_a_killed_server_fails_calls_in_flight_as_indefinite(
    wire: Wire, redis_server: servers.RedisNode
) -> None:
    await wire.call("PING")
    redis_server.pause()
    calls = [asyncio.ensure_future(wire.call("PING")) for _ in range(3)]
    await asyncio.sleep(0.01)
    redis_server.kill()
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, BackendUnavailable)
        assert not result.definite, "it may have been carried out"
    await redis_server.start()
    assert await wire.call("PING") == b"PONG"


@pytest.mark.faults
async def test_a_server_that_has_answered_before_is_given_time_to_restart(
    redis_server: servers.RedisNode,
) -> None:
    wire = Wire(opener_for(redis_server.url), call_timeout=5.0, reconnect_for=60.0)
    await wire.call("PING")
    redis_server.kill()
    await until(lambda: not wire.is_open)
    call = asyncio.ensure_future(wire.call("PING"))
    await asyncio.sleep(0.05)
    await redis_server.start()
    assert await call == b"PONG"
    await wire.aclose()
    redis_server.kill()
    hasty = Wire(opener_for(redis_server.url), call_timeout=5.0, reconnect_for=60.0)
    with pytest.raises(BackendUnavailable) as caught:
        await hasty.call("PING")
    assert caught.value.definite, "nothing was sent"
    await hasty.aclose()


@pytest.mark.faults
async def test_a_frozen_server_loses_the_connection_after_call_timeout(
    redis_server: servers.RedisNode,
) -> None:
    wire = Wire(opener_for(redis_server.url), call_timeout=0.2)
    await wire.call("PING")
    redis_server.pause()
    with pytest.raises(BackendUnavailable, match=r"no answer for 0\.2 s") as caught:
        await wire.call("PING")
    assert not caught.value.definite
    redis_server.resume()
    await until_answers(wire)
    await until_connections(redis_server, 1)
    await wire.aclose()


@pytest.mark.faults
async def test_a_server_that_falls_silent_after_a_crowd_was_served_loses_the_connection(
    redis_server: servers.RedisNode,
) -> None:
    """Whoever sends next to a crowd waits for the others of its tick, and is watched over all the same."""
    wire = Wire(opener_for(redis_server.url), call_timeout=0.2)
    for _ in range(2):
        await asyncio.gather(*(wire.call("PING") for _ in range(20)))
    stream = wire._stream
    assert stream is not None
    await until(lambda: stream._stall_timer is None)
    redis_server.pause()
    with pytest.raises(BackendUnavailable, match=r"no answer for 0\.2 s"):
        await wire.call("PING")
    redis_server.resume()
    await wire.aclose()


async def test_a_slow_server_that_goes_on_answering_keeps_the_connection() -> None:
    """The limit is for silence, not for the sum of many answers."""

    async def slowly(words: list[bytes], writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(b"+PONG\r\n")

    async with impostor(slowly) as url:
        wire = Wire(opener_for(url), call_timeout=0.5)
        async with asyncio.timeout(60.0):
            assert await asyncio.gather(*(wire.call("PING") for _ in range(20))) == [b"PONG"] * 20
        await wire.aclose()


async def until_answers(wire: Wire) -> None:
    async def answers() -> bool:
        try:
            return bool(await wire.call("PING") == b"PONG")
        except BackendUnavailable:
            return False

    await until(answers)


async def until_connections(node: servers.RedisNode, number: int) -> None:
    async def reached() -> bool:
        return await connections(node) == number

    await until(reached)


async def crowd(wire: Wire) -> "list[asyncio.Task[Any]]":
    """Thirty calls of a megabyte, one a tick."""
    calls = []
    for _ in range(30):
        calls.append(asyncio.ensure_future(wire.call("ECHO", "x" * 1_000_000)))
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    return calls


@pytest.mark.faults
async def test_callers_wait_while_the_servers_buffers_are_full(redis_server: servers.RedisNode) -> None:
    wire = Wire(opener_for(redis_server.url), call_timeout=60.0)
    await wire.call("PING")
    redis_server.pause()
    calls = await crowd(wire)
    assert wire.commands < 31, "everything was sent to a server that reads nothing"
    assert wire.post(pack(("PING",))) is None
    calls[20].cancel()
    redis_server.resume()
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert [len(reply) for n, reply in enumerate(replies) if n != 20] == [1_000_000] * 29  # type: ignore[arg-type]
    assert wire.commands == 30
    await wire.aclose()


@pytest.mark.faults
async def test_callers_that_wait_to_send_survive_a_lost_connection(redis_server: servers.RedisNode) -> None:
    """They had sent nothing: they go on, on the next connection."""
    wire = Wire(opener_for(redis_server.url), call_timeout=60.0)
    await wire.call("PING")
    redis_server.pause()
    calls = await crowd(wire)
    sent = wire.commands - 1
    assert sent < 30
    redis_server.kill()
    await redis_server.start()
    replies = await asyncio.gather(*calls, return_exceptions=True)
    failed = [reply for reply in replies if isinstance(reply, BackendUnavailable)]
    assert len(failed) == sent
    assert not any(reply.definite for reply in failed)
    assert sum(isinstance(reply, bytes) for reply in replies) == 30 - sent
    await wire.aclose()


async def test_no_call_overtakes_those_that_wait_for_the_connection(redis_server: servers.RedisNode) -> None:
    """Also while the connection is open, but still being set up."""
    wire = Wire(opener_for(redis_server.url), call_timeout=60.0)
    set_up, go_on = asyncio.Event(), asyncio.Event()

    async def setting_up(_: Wire) -> None:
        set_up.set()
        await go_on.wait()

    wire.on_open = setting_up
    for _ in range(2):
        calls = [asyncio.ensure_future(wire.call("RPUSH", "order", "first"))]
        await set_up.wait()
        assert wire.is_open
        calls.append(asyncio.ensure_future(wire.call("RPUSH", "order", "second")))
        assert wire.post(pack(("PING",))) is None
        await asyncio.sleep(0.01)
        go_on.set()
        await asyncio.gather(*calls)
        assert await wire.call("LRANGE", "order", 0, -1) == [b"first", b"second"]
        await wire.call("DEL", "order")
        set_up.clear()
        go_on.clear()
        wire.drop("so that it opens again")
    await wire.aclose()


async def test_closing_fails_calls_in_flight_and_refuses_further_ones(
    wire: Wire, redis_server: servers.RedisNode
) -> None:
    await wire.call("PING")
    pending = asyncio.ensure_future(wire.call("BLPOP", "nothing", 0))
    await asyncio.sleep(0.01)
    await wire.aclose()
    with pytest.raises(BackendUnavailable, match="closed") as caught:
        await pending
    assert not caught.value.definite
    with pytest.raises(BackendUnavailable, match="closed") as refused:
        await wire.call("PING")
    assert refused.value.definite
    await until_connections(redis_server, 0)


async def test_closing_while_it_connects_tells_the_callers() -> None:
    """Nobody cancelled those callers, so they get an error and not a CancelledError."""
    accepted = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        wire = Wire(opener_for(f"redis://127.0.0.1:{port}"), call_timeout=5.0)
        call = asyncio.ensure_future(wire.call("PING"))
        await accepted.wait()
        await asyncio.sleep(0.01)
        await wire.aclose()
        with pytest.raises(BackendUnavailable, match="closed") as caught:
            await call
        assert caught.value.definite


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x02"], ids=["http", "binary"]
)
async def test_garbage_loses_the_connection_with_a_clear_error(garbage: bytes) -> None:
    async def rudely(words: list[bytes], writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)

    async with impostor(rudely) as url:
        wire = Wire(opener_for(url), call_timeout=5.0)
        for failed in await asyncio.gather(wire.call("ECHO", "x"), wire.call("PING"), return_exceptions=True):
            assert isinstance(failed, BackendUnavailable)
            assert "does not speak Redis's protocol" in str(failed)
            assert not failed.definite
        assert not wire.is_open
        await wire.aclose()


async def test_a_reply_that_nobody_asked_for_loses_the_connection() -> None:
    """From then on no reply could be trusted to belong to its command."""

    async def twice(words: list[bytes], writer: asyncio.StreamWriter) -> None:
        writer.write(b":1\r\n:2\r\n")

    async with impostor(twice) as url:
        wire = Wire(opener_for(url), call_timeout=5.0)
        assert await wire.call("PING") == 1
        await until(lambda: not wire.is_open)
        await wire.aclose()


async def test_a_server_that_is_not_there_is_reported_at_once() -> None:
    wire = Wire(opener_for("redis://127.0.0.1:1"), call_timeout=5.0, reconnect_for=3600.0)
    with pytest.raises(BackendUnavailable, match="cannot be reached") as caught:
        await wire.call("PING")
    assert caught.value.definite
    await wire.aclose()


async def test_a_cancelled_caller_does_not_stop_the_others_from_connecting(
    wire: Wire, redis_server: servers.RedisNode
) -> None:
    calls = [asyncio.ensure_future(wire.call("PING")) for _ in range(3)]
    await asyncio.sleep(0)
    await cancelled(calls[0])
    assert await asyncio.gather(*calls[1:]) == [b"PONG"] * 2
    assert await connections(redis_server) == 1
