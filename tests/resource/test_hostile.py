"""Requests that no client of ours would send: each is refused in JSON, nothing is stored, nobody waits."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from harness import resource
from harness.resource import ResourceProcess
from harness.resource.client import ResourceClient
from tests.resource.client import exchange
from tests.resource.conftest import running

PATIENCE = 0.7
MOST_CONNECTIONS = 60


@pytest.fixture(scope="module")
def strict() -> Iterator[ResourceProcess]:
    """A resource with little patience and few connections."""
    options = {"--client-timeout": f"{PATIENCE}s", "--max-connections": str(MOST_CONNECTIONS)}
    with running(ResourceProcess(store="memory", options=options)) as node:
        yield node


@pytest.fixture
async def client(strict: ResourceProcess) -> AsyncIterator[ResourceClient]:
    async with ResourceClient(strict.url) as client:
        yield client


def put(path: str, *headers: str, body: bytes = b"x", version: str = "HTTP/1.1") -> bytes:
    lines = [f"PUT {path} {version}", "Host: x", "X-Fence-Token: 1", "Connection: close", *headers]
    if not any(line.lower().startswith("transfer-encoding") for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def refusal(reply: bytes, status: int) -> str:
    """The sentence of a refusal that has this status and is JSON."""
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), reply
    assert b"content-type: application/json" in head.lower(), reply
    return str(json.loads(body)["error"])


@pytest.mark.parametrize(
    ("target", "status"),
    [("http://xn--/r/key", 404), ("http://[::1/r/key", 400), ("http://a:99999/r/key", 400)],
)
async def test_an_absolute_target_with_a_bad_host_is_answered_and_holds_no_connection(
    strict: ResourceProcess, target: str, status: int
) -> None:
    reply = await exchange(strict, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    refusal(reply, status)
    assert "Traceback" not in strict.log_tail(1000)


async def test_an_absolute_target_with_a_good_host_is_served(strict: ResourceProcess, key: str) -> None:
    reply = await exchange(strict, put(f"http://somewhere:80/r/{key}"))
    assert reply.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        put("/r/key", "X: " + "x" * 9000),
        put("/r/key", "Content-Length: 5"),
        put("/r/key", "Transfer-Encoding: chunked", body=b"zz\r\n"),
        put("/r/key", "Bad Header: 1"),
    ],
    ids=["no HTTP", "endless header", "two lengths", "bad chunk", "bad header"],
)
async def test_what_the_parser_refuses_is_refused_in_json(
    strict: ResourceProcess, request_bytes: bytes
) -> None:
    refusal(await exchange(strict, request_bytes), 400)


@pytest.mark.parametrize("query", ["?b", "?", "?b=c&d", "#b"])
@pytest.mark.parametrize("method", ["PUT", "GET"])
async def test_a_query_behind_a_key_is_refused(
    strict: ResourceProcess, client: ResourceClient, key: str, method: str, query: str
) -> None:
    request = put(f"/r/{key}{query}").replace(b"PUT", method.encode())
    assert "a key is written" in refusal(await exchange(strict, request), 400)
    assert (await client.get(key)).status == 404


@pytest.mark.parametrize(
    "headers",
    [
        ('If-Match: "1"', 'If-Match: "2"'),
        ("If-None-Match: *", "If-None-Match: *"),
        ("X-Fence-Owner: a", "X-Fence-Owner: b"),
        ("X-Fence-Seq: 1", "X-Fence-Seq: 2"),
    ],
    ids=lambda headers: headers[0].partition(":")[0],
)
async def test_a_header_that_decides_may_come_once(
    strict: ResourceProcess, client: ResourceClient, key: str, headers: tuple[str, ...]
) -> None:
    refusal(await exchange(strict, put(f"/r/{key}", *headers)), 400)
    assert (await client.get(key)).status == 404


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "deflate, chunked"])
async def test_a_transfer_coding_that_is_not_understood_is_a_501(
    strict: ResourceProcess, client: ResourceClient, key: str, coding: str
) -> None:
    request = put(f"/r/{key}", f"Transfer-Encoding: {coding}", body=b"1\r\nx\r\n0\r\n\r\n")
    assert "chunked" in refusal(await exchange(strict, request), 501)
    assert (await client.get(key)).status == 404


@pytest.mark.parametrize("version", ["HTTP/0.9", "HTTP/2.0"])
async def test_another_version_of_http_is_refused(
    strict: ResourceProcess, client: ResourceClient, key: str, version: str
) -> None:
    reply = await exchange(strict, put(f"/r/{key}", version=version))
    assert refusal(reply, 505 if reply.startswith(b"HTTP/1.1 505") else 400)
    assert (await client.get(key)).status == 404


async def test_http_1_0_is_served_and_closed(strict: ResourceProcess, key: str) -> None:
    reply = await exchange(strict, put(f"/r/{key}", version="HTTP/1.0"))
    assert b" 200 " in reply.partition(b"\r\n")[0]


async def test_an_unknown_query_of_the_log_is_refused(client: ResourceClient) -> None:
    for query in ("?after=1&after=2", "?before=1", "?after=1&x=2", "?limit=-1", "?limit=1&limit=1"):
        assert (await client.send("GET", f"/log{query}")).status == 400


async def test_a_client_that_never_reads_is_cut_off(
    strict: ResourceProcess, client: ResourceClient, key: str
) -> None:
    """Its connection is closed though it is not idle: an answer waits to be read."""
    await client.put(key, b"x" * (1 << 20), fence=1)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((strict.host, strict.port))
        deaf.sendall(f"GET /r/{key} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 10)
        before = deaf.getsockname()[1]
        async with asyncio.timeout(60):
            while _connected(strict, before):
                await asyncio.sleep(0.05)


async def test_a_reader_that_is_slow_but_reads_gets_its_answer(key: str) -> None:
    """The time-out is for a connection that makes no progress."""
    patience = 2.0
    body = bytes(8 << 20)
    options = {"--client-timeout": f"{patience}s", "--max-body": str(len(body))}
    async with (
        resource.spawn(store="memory", options=options) as node,
        ResourceClient(node.url) as client,
    ):
        assert (await client.put(key, bytes(8 << 20), fence=1)).status == 200
        assert (await _read_slowly(node, key, 2 * patience)).endswith(body)


async def _read_slowly(node: ResourceProcess, key: str, seconds: float) -> bytes:
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.connect((node.host, node.port))
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(
            slow, f"GET /r/{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        started = loop.time()
        received = bytearray()
        while part := await loop.sock_recv(slow, 65536):
            received += part
            if loop.time() - started < seconds:
                await asyncio.sleep(0.02)
    return bytes(received)


def _deaf_reader(node: ResourceProcess, key: str) -> socket.socket:
    """Asks for a value and does not read it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((node.host, node.port))
    sock.sendall(f"GET /r/{key} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return sock


async def test_answers_that_nobody_reads_are_bounded_in_memory() -> None:
    """More of them than fit are a 503; the service stays usable and small."""
    options = {"--max-buffered": str(20 << 20), "--max-body": str(8 << 20)}
    async with (
        resource.spawn(store="memory", options=options) as node,
        ResourceClient(node.url) as client,
    ):
        assert (await client.put("big", bytes(8 << 20), fence=1)).status == 200
        deaf: list[socket.socket] = []
        try:
            async with asyncio.timeout(60):
                while (answer := await client.get("big")).status != 503:
                    # One that was refused because of our own question does not count: ask for another.
                    deaf.append(_deaf_reader(node, "big"))
                    await asyncio.sleep(0.05)
            assert "unread" in answer.json["error"]
            assert (await client.put("small", b"v", fence=1)).status == 200
        finally:
            for sock in deaf:
                sock.close()
        async with asyncio.timeout(60):
            while (await client.get("big")).status != 200:
                await asyncio.sleep(0.05)


async def test_bodies_that_do_not_end_are_bounded_in_memory() -> None:
    options = {"--max-buffered": str(1 << 20)}
    async with (
        resource.spawn(store="memory", options=options) as node,
        ResourceClient(node.url) as client,
    ):
        unfinished = []
        for number in range(20):
            _, writer = await asyncio.open_connection(node.host, node.port)
            head = (
                f"PUT /r/k{number} HTTP/1.1\r\nHost: x\r\nX-Fence-Token: 1\r\nContent-Length: 200000\r\n\r\n"
            )
            writer.write(head.encode() + b"x" * 199_999)
            unfinished.append(writer)
        async with asyncio.timeout(60):
            while await client.metric('resource_writes_total{outcome="invalid"}') < 10:
                await asyncio.sleep(0.05)
        assert (await client.put("small", b"v", fence=1)).status == 200
        for writer in unfinished:
            writer.close()


async def test_connections_beyond_the_bound_are_told_so(
    strict: ResourceProcess, client: ResourceClient
) -> None:
    held = [await asyncio.open_connection(strict.host, strict.port) for _ in range(MOST_CONNECTIONS)]
    reply = await exchange(strict, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert "connections" in refusal(reply, 503)
    for _, writer in held:
        writer.close()
    async with asyncio.timeout(60):
        while (await client.send("GET", "/healthz")).status != 200:
            await asyncio.sleep(0.05)


async def test_a_body_in_flight_at_sigterm_is_stored_and_answered(tmp_path: object) -> None:
    async with resource.spawn() as node, ResourceClient(node.url) as client:
        assert (await client.put("other", b"v", fence=1)).status == 200
        reader, writer = await asyncio.open_connection(node.host, node.port)
        writer.write(b"PUT /r/key HTTP/1.1\r\nHost: x\r\nX-Fence-Token: 1\r\nContent-Length: 10\r\n\r\nhalf")
        await client.get("other")  # by now the other connection's bytes have been read as well
        stopping = asyncio.create_task(node.stop())
        async with asyncio.timeout(60):
            while _listens(node):
                await asyncio.sleep(0.01)
            writer.write(b" again")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            await reader.read()
        await stopping
        writer.close()
        await node.restart()
        assert (await client.get("key")).body == b"half again"


def _connected(node: ResourceProcess, port: int) -> bool:
    import psutil

    return any(
        s.raddr and s.raddr.port == port and s.status == psutil.CONN_ESTABLISHED
        for s in psutil.Process(node.pid).net_connections(kind="tcp")
    )


def _listens(node: ResourceProcess) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((node.host, node.port)) == 0
