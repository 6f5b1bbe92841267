"""The fenced write: what each kind of reply, or none, means for the history."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.resource.client import Reply, ResourceClient, Unanswered, UnexpectedReply
from harness.resource.reply import Meaning
from harness.resource.wire import MAX_REPLY
from harness.servers.ports import free_port


@asynccontextmanager
async def answering(answer: bytes | None, *, body: int = 4) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A resource that reads one request and sends `answer`; without one it hangs up."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heard.append(head + await reader.readexactly(body))
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", heard


def http(status: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


async def put(url: str, key: str = "a/b", fence: int | None = 7, timeout: float = 30.0) -> Reply:
    async with ResourceClient(url, timeout=timeout) as writer:
        return await writer.put(key, b"body", fence=fence, owner="me")


async def test_the_request_carries_fence_owner_and_body() -> None:
    async with answering(http("200 OK", "{}")) as (url, heard):
        assert (await put(url)).write == "accepted"
    (request,) = heard
    assert request.startswith(b"PUT /r/a%2Fb HTTP/1.1\r\n")
    assert b"X-Fence-Token: 7\r\n" in request
    assert b"X-Fence-Owner: me\r\n" in request
    assert request.endswith(b"\r\n\r\nbody")


async def test_without_a_fence_no_token_is_sent() -> None:
    async with answering(http("200 OK", "{}")) as (url, heard):
        await put(url, fence=None)
    assert b"X-Fence-Token" not in heard[0]


async def test_a_refusal_tells_what_the_resource_has_seen() -> None:
    refusal = http("409 Conflict", '{"error":"stale fencing token","seen":9,"got":7}')
    async with answering(refusal) as (url, _):
        assert (await put(url)).meaning == Meaning("stale", 9)


@pytest.mark.parametrize(
    ("answer", "write"),
    [
        (http("400 Bad Request", '{"error":"no"}'), "failed"),
        (http("413 Too Large", '{"error":"no"}'), "failed"),
        (http("503 Unavailable", '{"error":"the store failed"}'), "unknown"),
        (http("409 Conflict", "not json"), "unknown"),
        (None, "unknown"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "unknown"),
        (b"nonsense\r\n\r\n", "unknown"),
    ],
)
async def test_only_what_certainly_did_not_happen_has_failed(answer: bytes | None, write: str) -> None:
    async with answering(answer) as (url, _):
        reply = await put(url)
    assert reply.write == write
    assert reply.error


async def test_no_connection_is_a_failure_that_certainly_did_not_happen() -> None:
    reply = await put(f"http://127.0.0.1:{free_port()}")
    assert reply.write == "failed"
    assert "no connection to the resource" in (reply.error or "")


async def test_silence_is_unknown() -> None:
    silent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reply = await put(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=0.2)
        silent.set()
        await asyncio.sleep(0)
    assert reply.write == "unknown"
    assert "did not answer within" in (reply.error or "")


class Scripted:
    """A server that answers each request on each connection as the test says, and keeps what it heard."""

    def __init__(self) -> None:
        self.heard = 0
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.answers: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(4)
                self.heard += 1
                writer.write(self.answers.pop(0) if self.answers else http("200 OK", "{}"))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Scripted, str]]:
    script = Scripted()
    async with await asyncio.start_server(script.serve, "127.0.0.1", 0) as server:
        yield script, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def write(writer: ResourceClient) -> Reply:
    return await writer.put("k", b"body", fence=1, owner="me")


async def test_a_connection_is_kept_and_used_again() -> None:
    async with scripted() as (script, url), ResourceClient(url) as writer:
        for _ in range(20):
            assert (await write(writer)).write == "accepted"
    assert (script.connections, script.heard) == (1, 20)


async def test_a_connection_that_the_server_closed_in_between_is_not_used() -> None:
    async with scripted() as (script, url), ResourceClient(url) as writer:
        await write(writer)
        script.writers[0].close()
        async with asyncio.timeout(30):
            while writer.idle:
                await asyncio.sleep(0.001)
        assert (await write(writer)).write == "accepted"
    assert (script.connections, script.heard) == (2, 2)


async def test_a_connection_that_says_close_is_not_used_again() -> None:
    async with scripted() as (script, url), ResourceClient(url) as writer:
        script.answers = [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"]
        assert (await write(writer)).write == "accepted"
        assert (await write(writer)).write == "accepted"
    assert script.connections == 2


async def test_nothing_is_ever_sent_twice() -> None:
    """The server carries the write out and hangs up: unknown, and it saw one request."""
    heard = 0

    async def serve(reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        nonlocal heard
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(4)
        heard += 1
        if heard == 1:
            stream.write(http("200 OK", "{}"))
            await reader.readuntil(b"\r\n\r\n")
            heard += 1
        stream.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        async with ResourceClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as writer:
            assert (await write(writer)).write == "accepted"
            lost = await write(writer)
    assert lost.write == "unknown"
    assert heard == 2


@pytest.mark.parametrize(
    "surplus", [http("409 Conflict", '{"seen":9}'), b"garbage\r\n\r\n"], ids=["reply", "garbage"]
)
async def test_what_nobody_asked_for_is_never_the_next_reply(surplus: bytes) -> None:
    async with scripted() as (script, url), ResourceClient(url) as writer:
        script.answers = [http("200 OK", "{}") + surplus]
        assert (await write(writer)).write == "accepted"
        assert (await write(writer)).write == "accepted"
        script.writers[-1].write(surplus)
        async with asyncio.timeout(30):
            while writer.idle:
                await asyncio.sleep(0.001)
        assert (await write(writer)).write == "accepted"
    assert script.connections == 3


async def test_a_reply_without_end_is_not_read_on() -> None:
    async with scripted() as (script, url), ResourceClient(url) as writer:
        script.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(MAX_REPLY)]
        reply = await write(writer)
    assert reply.write == "unknown"
    assert "longer than" in (reply.error or "")


@asynccontextmanager
async def in_small_pieces(answer: bytes) -> AsyncIterator[str]:
    """A server that sends its answer byte by byte."""

    async def serve(reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in answer:
            stream.write(bytes([byte]))
            await stream.drain()
            await asyncio.sleep(0)
        await reader.read()
        stream.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_reply_in_small_pieces_and_after_a_remark_is_one_reply() -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" + http("409 Conflict", '{"seen":9}')
    async with in_small_pieces(answer) as url, ResourceClient(url) as writer:
        assert (await write(writer)).meaning == Meaning("stale", 9)


async def test_a_cancelled_write_takes_its_connection_along() -> None:
    """Its reply, still on the way, must not become another's."""
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        heard.set()
        await release.wait()
        stream.write(http("200 OK", "{}"))
        stream.close()

    heard = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        async with ResourceClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as writer:
            writing = asyncio.create_task(write(writer))
            await asyncio.wait_for(heard.wait(), 30)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            assert writer.take() is None
            release.set()
            assert (await write(writer)).write == "accepted"


async def test_whoever_waits_for_a_connection_gets_the_next_in_order() -> None:
    async with scripted() as (script, url), ResourceClient(url, connections=2) as writer:
        replies = await asyncio.gather(*(write(writer) for _ in range(50)))
    assert {reply.write for reply in replies} == {"accepted"}
    assert (script.connections, script.heard) == (2, 50)


async def test_a_cancelled_wait_for_a_connection_keeps_none() -> None:
    async with scripted() as (_, url), ResourceClient(url, connections=1) as writer:
        held = await writer.connect()
        waiting = [asyncio.create_task(write(writer)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await writer.put("k", b"body", fence=1, owner="me", on=held)
        waiting[1].cancel()
        async with asyncio.timeout(30):
            done = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(done[2], Reply) and done[2].write == "accepted"
        assert (await write(writer)).write == "accepted"


async def test_a_unix_socket_does_as_well(tmp_path: Path) -> None:
    script = Scripted()
    path = tmp_path / "resource.sock"
    async with await asyncio.start_unix_server(script.serve, path):
        assert (await put(f"unix:{path}", "k")).write == "accepted"
    assert script.heard == 1


@pytest.mark.parametrize("owner", ["two\r\nlines: yes", "ü", "\x00"])
async def test_an_owner_cannot_add_headers(owner: str) -> None:
    async with scripted() as (script, url), ResourceClient(url) as writer:
        with pytest.raises(ValueError, match="printable"):
            await writer.put("k", b"body", fence=1, owner=owner)
    assert script.heard == 0


async def test_a_reply_that_arrives_byte_by_byte_keeps_its_headers() -> None:
    answer = b"HTTP/1.1 102 Processing\r\nETag: no\r\n\r\n" + http("200 OK", '{"a": 1}')
    async with in_small_pieces(answer) as url, ResourceClient(url) as client:
        reply = await client.healthz()
    assert dict(reply.headers) == {"Content-Type": "application/json", "Content-Length": "8"}
    assert reply.json == {"a": 1}


async def test_a_question_without_an_answer_is_an_error_of_its_own() -> None:
    async with ResourceClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(Unanswered, match="no connection to the resource"):
            await client.get("k")
    async with answering(http("404 Not Found", "{}"), body=0) as (url, _), ResourceClient(url) as client:
        with pytest.raises(UnexpectedReply, match="answered 404 to /metrics"):
            await client.metric("a")
