"""The client side of fencing over HTTP, on aiohttp and on httpx: one behaviour."""

import asyncio
import contextlib
import pickle
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
import httpx
import pytest

from asyncdlock.errors import InvalidKey, StaleFence
from asyncdlock.fencing.http import FencedHttp, OneShotBody, ResourceError, UnknownOutcome, Value
from asyncdlock.fencing.httpx import FencedHttpx
from harness import resource
from harness.resource import ResourceProcess
from harness.resource.decision import REMEMBERED

Guard = FencedHttp | FencedHttpx
Open = Callable[[str], AbstractAsyncContextManager[Guard]]

NO_REPLY = (aiohttp.ClientError, httpx.HTTPError)


@asynccontextmanager
async def _on_aiohttp(url: str) -> AsyncIterator[Guard]:
    async with aiohttp.ClientSession() as session:
        yield FencedHttp(url, session)


@asynccontextmanager
async def _on_httpx(url: str) -> AsyncIterator[Guard]:
    async with httpx.AsyncClient() as client:
        yield FencedHttpx(url, client)


@pytest.fixture(params=[_on_aiohttp, _on_httpx], ids=["aiohttp", "httpx"])
def opened(request: pytest.FixtureRequest) -> Open:
    found: Open = request.param
    return found


@pytest.fixture
async def guard(any_resource: ResourceProcess, opened: Open) -> AsyncIterator[Guard]:
    async with opened(any_resource.url) as guard:
        yield guard


async def test_what_is_put_can_be_got(guard: Guard, key: str) -> None:
    assert await guard.get(key) == Value(None, fence=0, max_fence=0, version=0)
    await guard.put(key, b"a", fence=33)
    await guard.put(key, b"b", fence=33, seq=1)
    assert await guard.get(key) == Value(b"b", fence=33, max_fence=33, version=2)


async def test_a_displaced_holder_is_told_so(guard: Guard, key: str) -> None:
    await guard.put(key, b"new", fence=34)
    with pytest.raises(StaleFence) as caught:
        await guard.put(key, b"old", fence=33)
    assert (caught.value.key, caught.value.seen, caught.value.got) == (key, 34, 33)
    with pytest.raises(StaleFence):
        await guard.get(key, fence=33)


async def test_a_fenced_read_shuts_older_holders_out(guard: Guard, key: str) -> None:
    assert (await guard.get(key, fence=34)).max_fence == 34
    with pytest.raises(StaleFence):
        await guard.put(key, b"old", fence=33)
    await guard.put(key, b"new", fence=34)


async def test_repeating_a_write_whose_reply_was_lost_succeeds(guard: Guard, key: str) -> None:
    await guard.put(key, b"mine", fence=33)
    await guard.put(key, b"mine", fence=33)
    with pytest.raises(StaleFence):
        await guard.put(key, b"not the same", fence=33)
    assert (await guard.get(key)).version == 1


@pytest.mark.parametrize("odd", ["..", ".", "a/../b", "a?b#c", "%2F", "ключ 🔒"])
async def test_every_key_reaches_the_resource_as_it_is(guard: Guard, key: str, odd: str) -> None:
    name = f"{key}/{odd}"
    await guard.put(name, odd.encode(), fence=1)
    assert (await guard.get(name)).body == odd.encode()


async def test_a_key_of_dots_alone_is_a_key(guard: Guard) -> None:
    before = (await guard.get("..")).max_fence
    await guard.put("..", b"dots", fence=before + 1)
    assert (await guard.get("..")).body == b"dots"


async def test_other_refusals_carry_status_and_reason(guard: Guard, key: str) -> None:
    with pytest.raises(ResourceError, match="X-Fence-Token must be") as caught:
        await guard.put(key, b"v", fence=0)
    assert caught.value.status == 400
    with pytest.raises(ResourceError, match="longer") as caught:
        await guard.get("k" * 2000)
    assert caught.value.status == 400


async def test_an_answer_that_is_not_the_resources_is_an_error(opened: Open) -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(stranger, "127.0.0.1", 0) as server:
        async with opened(f"{_url(server)}/") as guard:
            with pytest.raises(ResourceError, match="hello"):
                await guard.get("key")


def _url(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()
    return f"http://{host}:{port}"


async def test_without_a_resource_the_session_says_so(opened: Open, free_port: int) -> None:
    async with opened(f"http://127.0.0.1:{free_port}") as guard:
        with pytest.raises((aiohttp.ClientConnectionError, httpx.ConnectError)):
            await guard.get("key")
        with pytest.raises((aiohttp.ClientConnectionError, httpx.ConnectError)):
            await guard.put("key", b"v", fence=1)


@pytest.fixture
def free_port() -> int:
    from harness.servers.ports import free_port

    return free_port()


class LossyProxy:
    """Passes everything on, and loses the reply of the next PUT after `meanwhile` has happened."""

    def __init__(self, node: ResourceProcess, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._node = node
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile
        self.puts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(self._node.host, self._node.port)
        try:
            while True:
                request = await _message(reader)
                upstream.write(request)
                reply = await _message(upstream_reader)
                if request.startswith(b"PUT"):
                    self.puts += 1
                    if self._meanwhile is not None:
                        meanwhile, self._meanwhile = self._meanwhile, None
                        await meanwhile()
                        return
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            upstream.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


@pytest.mark.parametrize("others", [0, 1, REMEMBERED + 1])
async def test_a_write_whose_reply_was_lost_is_never_called_refused_when_it_was_stored(
    any_resource: ResourceProcess, guard: Guard, opened: Open, key: str, others: int
) -> None:
    """The connection was kept from an earlier call, and other holders write before the repetition."""

    async def meanwhile() -> None:
        for number in range(others):
            await guard.put(key, b"theirs", fence=6 + number)

    proxy = LossyProxy(any_resource, meanwhile)
    async with (
        await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server,
        opened(_url(server)) as through,
    ):
        await through.get(key)
        if others <= 1:
            await through.put(key, b"mine", fence=5)
        else:
            with pytest.raises(UnknownOutcome) as caught:
                await through.put(key, b"mine", fence=5)
            assert (caught.value.key, caught.value.got) == (key, 5)
        assert proxy.puts == 2
    assert (await guard.get(key)).version == 1 + others


async def test_a_repetition_that_was_never_stored_is_stale_for_certain(guard: Guard, key: str) -> None:
    await guard.put(key, b"theirs", fence=6)
    with pytest.raises(StaleFence):
        await guard.put(key, b"mine", fence=5, repeat=True)


async def test_a_body_is_sent_once_and_the_repetition_is_the_guards(opened: Open, key: str) -> None:
    """A connection that is always closed on the second request: one repetition, then the error."""
    requests = 0

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        with contextlib.suppress(asyncio.IncompleteReadError):
            request = await _message(reader)
            if request.startswith(b"PUT"):
                requests += 1
        writer.close()

    async with await asyncio.start_server(closing, "127.0.0.1", 0) as server, opened(_url(server)) as guard:
        with pytest.raises(NO_REPLY):
            await guard.put(key, b"v", fence=1)
    assert requests == 2


@pytest.mark.parametrize("asks", [True, False], ids=["", "aiohttp before 3.14.5"])
async def test_no_body_is_sent_again_unless_it_is_said_to_be_a_repetition(
    key: str, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp repeats a PUT by itself when a kept connection is closed: the resource must hear of it."""
    if not asks:  # whether a body was sent: older ones try to send it again
        monkeypatch.setattr(OneShotBody, "consumed", False)
    requests: list[bytes] = []

    async def serves_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            requests.append(await _message(reader))
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"version":1}')
            requests.append(await _message(reader))
        writer.close()

    async with (
        await asyncio.start_server(serves_one, "127.0.0.1", 0) as server,
        aiohttp.ClientSession() as session,
    ):
        host, port = server.sockets[0].getsockname()
        guard = FencedHttp(f"http://{host}:{port}", session)
        await guard.put(key, b"v", fence=1)
        await guard.put(key, b"w", fence=1, seq=1)
    assert [b"X-Fence-Repeat" in request for request in requests] == [False, False, True]


ANSWERS = {
    "redirect": b"HTTP/1.1 303 See Other\r\nLocation: /healthz\r\nContent-Length: 0\r\n\r\n",
    "page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 18\r\n\r\n<html>login</html>",
    "list": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
    "word for a version": b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"a"}',
    "other tag": b'HTTP/1.1 200 OK\r\nETag: "abc"\r\nX-Max-Fence: 9\r\nContent-Length: 1\r\n\r\nv',
    "word for a fence": b'HTTP/1.1 200 OK\r\nETag: "1"\r\nX-Max-Fence: abc\r\nContent-Length: 1\r\n\r\nv',
    "word for seen": b'HTTP/1.1 409 Conflict\r\nContent-Length: 14\r\n\r\n{"seen":"abc"}',
    "another's 404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnginx",
}


@asynccontextmanager
async def answering(answer: bytes, opened: Open) -> AsyncIterator[Guard]:
    """A guard for something that gives one answer to everything."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await _message(reader)
                writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, opened(_url(server)) as guard:
        yield guard


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_only_the_answer_of_a_fenced_resource_is_believed(answer: bytes, opened: Open) -> None:
    async with answering(answer, opened) as guard:
        with pytest.raises(ResourceError):
            await guard.put("key", b"v", fence=5)
        with pytest.raises(ResourceError):
            await guard.get("key", fence=5)
        with pytest.raises(ResourceError):
            await guard.get("key")


async def test_a_weak_tag_is_a_version_as_well(opened: Open) -> None:
    answer = (
        b'HTTP/1.1 200 OK\r\nETag: W/"3"\r\nX-Max-Fence: 5\r\nX-Fence-Token: 2\r\nContent-Length: 1\r\n\r\nv'
    )
    async with answering(answer, opened) as guard:
        assert await guard.get("key", fence=5) == Value(b"v", fence=2, max_fence=5, version=3)


async def test_a_fenced_read_of_a_resource_that_does_not_fence_reads_is_an_error(
    opened: Open, key: str
) -> None:
    async with resource.spawn(store="memory", fence="writes") as node, opened(node.url) as guard:
        with pytest.raises(ResourceError, match="does not fence reads"):
            await guard.get(key, fence=7)


async def test_an_error_of_the_guard_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(UnknownOutcome("key", seen=6, got=5)))
    assert (error.key, error.seen, error.got) == ("key", 6, 5)
    assert "'key'" in str(error)


async def test_a_key_that_is_no_text_is_refused_before_anything_is_sent(guard: Guard) -> None:
    with pytest.raises(InvalidKey):
        await guard.put("\ud800", b"v", fence=1)
