"""What clients must not do, and that doing it stores nothing and hurts nobody else."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest

from harness.resource import ResourceProcess
from harness.resource.client import ResourceClient
from tests.resource.client import exchange
from tests.resource.conftest import running

LIMIT = 100_000


@pytest.fixture(scope="module")
def strict() -> Iterator[ResourceProcess]:
    """A resource with little patience."""
    options = {"--max-body": str(LIMIT), "--client-timeout": "700ms"}
    with running(ResourceProcess(store="memory", options=options)) as node:
        yield node


@pytest.fixture
async def client(strict: ResourceProcess) -> AsyncIterator[ResourceClient]:
    async with ResourceClient(strict.url) as client:
        yield client


def put(key: str, *headers: str, body: bytes = b"") -> bytes:
    return (
        "\r\n".join([f"PUT /r/{key} HTTP/1.1", "Host: x", "X-Fence-Token: 1", *headers, "", ""]).encode()
        + body
    )


def error(reply: bytes) -> str:
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return str(json.loads(body)["error"])


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def test_a_body_of_the_limit_is_stored_and_one_byte_more_is_not(
    client: ResourceClient, key: str
) -> None:
    assert (await client.put(key, b"x" * (LIMIT + 1), fence=1)).status == 413
    assert (await client.get(key)).status == 404
    assert (await client.put(key, b"x" * LIMIT, fence=1)).status == 200


async def test_a_body_of_unknown_length_is_cut_off_at_the_limit(strict: ResourceProcess, key: str) -> None:
    coding = "Transfer-Encoding: chunked", "Connection: close"
    reply = await exchange(strict, put(key, *coding, body=chunked(*[b"x" * 1000] * 101)))
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert error(reply) == f"the body is larger than {LIMIT} bytes"
    reply = await exchange(strict, put(key, *coding, body=chunked(*[b"x" * 1000] * 100)))
    assert reply.startswith(b"HTTP/1.1 200 ")


async def test_a_body_announced_too_large_is_refused_before_it_is_sent(
    strict: ResourceProcess, key: str
) -> None:
    reply = await exchange(strict, put(key, f"Content-Length: {LIMIT + 1}"))
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert "larger" in error(reply)


async def test_a_body_that_does_not_come_is_a_408_and_nothing_stored(
    strict: ResourceProcess, client: ResourceClient, key: str
) -> None:
    reply = await exchange(strict, put(key, "Content-Length: 10", body=b"half"))
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert error(reply) == "the body did not arrive in time"
    assert (await client.get(key)).status == 404


async def test_a_body_that_drips_is_a_408_as_well(strict: ResourceProcess, key: str) -> None:
    """The time is for the whole body: a byte now and then buys no more of it."""
    reader, writer = await asyncio.open_connection(strict.host, strict.port)
    writer.write(put(key, "Content-Length: 10000"))

    async def drip() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.1)

    dripping = asyncio.create_task(drip())
    async with asyncio.timeout(60):
        status = await reader.readline()
    dripping.cancel()
    writer.close()
    assert status.startswith(b"HTTP/1.1 408 ")


async def test_headers_that_do_not_come_end_the_connection(strict: ResourceProcess) -> None:
    assert await exchange(strict, b"PUT /r/key HTTP/1.1\r\nX-Fence-") == b""


async def test_a_client_that_leaves_within_its_body_has_stored_nothing(
    strict: ResourceProcess, client: ResourceClient, key: str
) -> None:
    before = await client.metric('resource_writes_total{outcome="invalid"}')
    _, writer = await asyncio.open_connection(strict.host, strict.port)
    writer.write(put(key, "Content-Length: 10", body=b"half"))
    await writer.drain()
    writer.transport.abort()
    async with asyncio.timeout(60):
        while await client.metric('resource_writes_total{outcome="invalid"}') == before:
            await asyncio.sleep(0.01)
    assert (await client.get(key)).status == 404
    assert "Traceback" not in strict.log_tail(1000)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        put("key", "Transfer-Encoding: chunked", body=b"zz\r\n"),
        put("key", "X: " + "x" * 9000),
    ],
    ids=["no HTTP", "bad chunk", "endless header"],
)
async def test_bytes_that_are_no_request_get_a_400_and_no_traceback(
    strict: ResourceProcess, request_bytes: bytes
) -> None:
    assert b" 400 Bad Request" in await exchange(strict, request_bytes)
    assert "Traceback" not in strict.log_tail(1000)


async def test_a_client_that_asks_first_is_told_to_continue(strict: ResourceProcess, key: str) -> None:
    reader, writer = await asyncio.open_connection(strict.host, strict.port)
    writer.write(put(key, "Content-Length: 4", "Expect: 100-continue", "Connection: close"))
    async with asyncio.timeout(60):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_an_owner_must_be_short_text(client: ResourceClient, strict: ResourceProcess, key: str) -> None:
    assert (await client.put(key, fence=1, x_fence_owner="o" * 257)).status == 400
    reply = await exchange(
        strict, put(key, "Connection: close", "Content-Length: 0")[:-2] + b"X-Fence-Owner: \xff\r\n\r\n"
    )
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert (await client.get(key)).status == 404


async def test_a_reader_that_leaves_within_the_log_hurts_nobody(
    any_resource: ResourceProcess, http: ResourceClient, key: str
) -> None:
    """The log is longer than what fits into the buffers of a connection."""
    long_key, owner = key.ljust(1000, "x"), "o" * 250
    for first in range(1, 2001, 500):
        tokens = range(first, first + 500)
        await asyncio.gather(*(http.put(long_key, fence=n, x_fence_owner=owner) for n in tokens))
    reader, writer = await asyncio.open_connection(any_resource.host, any_resource.port)
    writer.write(b"GET /log HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.transport.abort()
    assert len(await http.log_of(long_key)) == 2000
    assert "Traceback" not in any_resource.log_tail(1000)


async def test_slow_clients_do_not_hold_up_the_others(
    strict: ResourceProcess, client: ResourceClient, key: str
) -> None:
    slow = [
        asyncio.create_task(exchange(strict, put(f"{key}-slow", "Content-Length: 10", body=b"half")))
        for _ in range(50)
    ]
    for token in range(1, 51):
        assert (await client.put(key, fence=token)).status == 200
    replies = await asyncio.gather(*slow)
    assert all(reply.startswith(b"HTTP/1.1 408 ") for reply in replies)
