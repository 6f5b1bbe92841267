"""The client side of fencing over HTTP."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from asyncdlock.errors import StaleFence
from asyncdlock.fencing.http import FencedHttp, ResourceError, Value
from harness.resource import ResourceProcess


@pytest.fixture
async def guard(any_resource: ResourceProcess) -> AsyncIterator[FencedHttp]:
    async with aiohttp.ClientSession() as session:
        yield FencedHttp(any_resource.url, session)


async def test_what_is_put_can_be_got(guard: FencedHttp, key: str) -> None:
    assert await guard.get(key) == Value(None, fence=0, max_fence=0, version=0)
    await guard.put(key, b"a", fence=33)
    await guard.put(key, b"b", fence=33, seq=1)
    assert await guard.get(key) == Value(b"b", fence=33, max_fence=33, version=2)


async def test_a_displaced_holder_is_told_so(guard: FencedHttp, key: str) -> None:
    await guard.put(key, b"new", fence=34)
    with pytest.raises(StaleFence) as caught:
        await guard.put(key, b"old", fence=33)
    assert (caught.value.key, caught.value.seen, caught.value.got) == (key, 34, 33)
    with pytest.raises(StaleFence):
        await guard.get(key, fence=33)


async def test_a_fenced_read_shuts_older_holders_out(guard: FencedHttp, key: str) -> None:
    assert (await guard.get(key, fence=34)).max_fence == 34
    with pytest.raises(StaleFence):
        await guard.put(key, b"old", fence=33)
    await guard.put(key, b"new", fence=34)


async def test_repeating_a_write_whose_reply_was_lost_succeeds(guard: FencedHttp, key: str) -> None:
    await guard.put(key, b"mine", fence=33)
    await guard.put(key, b"mine", fence=33)
    with pytest.raises(StaleFence):
        await guard.put(key, b"not the same", fence=33)
    assert (await guard.get(key)).version == 1


@pytest.mark.parametrize("odd", ["..", ".", "a/../b", "a?b#c", "%2F", "ключ 🔒"])
async def test_every_key_reaches_the_resource_as_it_is(guard: FencedHttp, key: str, odd: str) -> None:
    name = f"{key}/{odd}"
    await guard.put(name, odd.encode(), fence=1)
    assert (await guard.get(name)).body == odd.encode()


async def test_a_key_of_dots_alone_is_a_key(guard: FencedHttp) -> None:
    before = (await guard.get("..")).max_fence
    await guard.put("..", b"dots", fence=before + 1)
    assert (await guard.get("..")).body == b"dots"


async def test_other_refusals_carry_status_and_reason(guard: FencedHttp, key: str) -> None:
    with pytest.raises(ResourceError, match="X-Fence-Token must be") as caught:
        await guard.put(key, b"v", fence=0)
    assert caught.value.status == 400
    with pytest.raises(ResourceError, match="longer") as caught:
        await guard.get("k" * 2000)
    assert caught.value.status == 400


async def test_an_answer_that_is_not_the_resources_is_an_error() -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(stranger, "127.0.0.1", 0) as server,
        aiohttp.ClientSession() as session,
    ):
        host, port = server.sockets[0].getsockname()
        with pytest.raises(ResourceError, match="hello"):
            await FencedHttp(f"http://{host}:{port}/", session).get("key")


async def test_without_a_resource_the_session_says_so(free_port: int) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await FencedHttp(f"http://127.0.0.1:{free_port}", session).get("key")


@pytest.fixture
def free_port() -> int:
    from harness.servers.ports import free_port

    return free_port()
