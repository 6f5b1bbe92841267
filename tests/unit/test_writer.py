"""The fenced write: what each kind of reply, or none, means for the history."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from harness import writer as writer_module
from harness.servers.ports import free_port
from harness.writer import Reply, open_writer


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A resource that reads one request and sends `answer`; without one it hangs up."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heard.append(head + await reader.readexactly(4))
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


async def put(url: str, key: str = "a/b", fence: int | None = 7) -> Reply:
    async with open_writer(url) as writer:
        return await writer.put(key, fence=fence, owner="me", body=b"body")


async def test_the_request_carries_fence_owner_and_body() -> None:
    async with answering(http("200 OK", "{}")) as (url, heard):
        assert await put(url) == Reply("accepted")
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
        assert await put(url) == Reply("stale", 9)


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


async def test_silence_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "WRITE_TIMEOUT", 0.2)
    silent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reply = await put(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        silent.set()
        await asyncio.sleep(0)
    assert reply.write == "unknown"
    assert "did not answer within" in (reply.error or "")
