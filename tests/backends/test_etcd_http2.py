"""HTTP/2 as the etcd backend speaks it, against a server that uses every right it has."""

import asyncio
import struct
from collections.abc import AsyncIterator

import grpc
import pytest

from asyncdlock.backends.etcd.failures import Advice, classify
from asyncdlock.backends.etcd.transport.calls import StreamMethod, UnaryMethod
from asyncdlock.backends.etcd.transport.channel import Http2Channel
from asyncdlock.backends.etcd.transport.conversation import RpcFailed
from asyncdlock.backends.etcd.transport.frames import (
    ACK,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    header_block,
)
from asyncdlock.backends.etcd.transport.library import LibraryChannel
from tests.backends.http2_server import Http2Server, http2_server
from tests.backends.support import until

_REFUSED, _CANCELLED, _ENHANCE_YOUR_CALM, _INADEQUATE_SECURITY = 7, 8, 11, 12


@pytest.fixture
async def server() -> AsyncIterator[Http2Server]:
    async with http2_server() as one:
        yield one


@pytest.fixture
async def channel(server: Http2Server) -> AsyncIterator[Http2Channel]:
    one = Http2Channel(server.address, None)
    yield one
    await one.close()


def echo(channel: Http2Channel) -> UnaryMethod:
    return channel.unary_unary("/test.Echo/Say", bytes, bytes)


def call(channel: Http2Channel, message: bytes = b"hello", *, timeout: float = 30.0) -> "asyncio.Task[bytes]":
    async def run() -> bytes:
        answer: bytes = await echo(channel)(message, timeout=timeout, metadata=(("hasleader", "true"),))
        return answer

    return asyncio.create_task(run())


async def failure(calling: "asyncio.Task[bytes]") -> RpcFailed:
    with pytest.raises(RpcFailed) as failed:
        await calling
    return failed.value


async def test_a_request_and_its_answer(server: Http2Server, channel: Http2Channel) -> None:
    calling = call(channel)
    await server.accepted()
    asked = await server.request()
    assert asked.payload == b"\0\0\0\0\x05hello"
    assert server.headers[":path"] == "/test.Echo/Say"
    assert server.headers["hasleader"] == "true"
    assert server.headers[":authority"] == server.address
    server.answer(asked.stream, b"there")
    assert await calling == b"there"


async def test_answers_in_the_smallest_pieces(server: Http2Server, channel: Http2Channel) -> None:
    """Headers over many frames, data byte by byte; and the next answer is read with the same table."""
    for text in (b"one", b"two"):
        calling = call(channel)
        if not server.connections:
            await server.accepted()
        server.answer((await server.request()).stream, text, pieces=1)
        assert await calling == text


async def test_padding_is_no_part_of_what_is_said(server: Http2Server, channel: Http2Channel) -> None:
    calling = call(channel)
    await server.accepted()
    asked = await server.request()
    server.open_answer(asked.stream)
    server.send(DATA, 0x8, asked.stream, b"\x03" + b"\0\0\0\0\x02ok" + bytes(3))
    server.trailers(asked.stream, [("grpc-status", "0")])
    assert await calling == b"ok"


async def test_nothing_is_sent_beyond_the_windows(server: Http2Server, channel: Http2Channel) -> None:
    """A request larger than the stream's window, the connection's and a frame: in parts, as they grow."""
    message = bytes(range(256)) * 400
    calling = call(channel, message)
    await server.accepted()
    got, stream = b"", 0
    while len(got) < 65_535:
        part = await server.next(DATA)
        assert len(part.payload) <= 16_384
        got, stream = got + part.payload, part.stream
    assert len(got) == 65_535
    server.more_window(stream, 1 << 20)  # of no use without the connection's
    server.send(PING, 0, 0, b"12345678")
    await server.ponged(b"12345678")  # and no DATA in front of it
    server.more_window(0, 1 << 20)
    while len(got) < 5 + len(message):
        got += (await server.next(DATA)).payload
    assert got[5:] == message
    server.answer(stream, b"ok")
    assert await calling == b"ok"


async def test_a_window_that_the_server_takes_back_is_waited_for(
    server: Http2Server, channel: Http2Channel
) -> None:
    """A smaller initial window makes those of open streams negative."""
    first = call(channel, b"x" * 1000)
    await server.accepted()
    asked = await server.request()
    server.settings(window=10)
    while not (await server.next(SETTINGS)).flags & ACK:
        pass
    second = call(channel, b"y" * 20)
    server.answer(asked.stream, b"one")
    assert await first == b"one"
    part = await server.next(DATA)
    assert len(part.payload) == 10
    server.settings(window=5)  # five more were sent than it would have liked
    server.more_window(part.stream, 5)
    server.send(PING, 0, 0, b"12345678")
    await server.ponged(b"12345678")
    server.more_window(part.stream, 100)
    rest = await server.next(DATA)
    assert len(rest.payload) == 15
    server.answer(part.stream, b"two")
    assert await second == b"two"


async def test_what_has_been_read_may_be_sent_again(server: Http2Server, channel: Http2Channel) -> None:
    """An answer larger than all windows arrives, because both are opened again."""
    calling = call(channel)
    await server.accepted()
    asked = await server.request()
    server.open_answer(asked.stream)
    server.say(asked.stream, bytes(3 << 20))
    updates = {(await server.next(WINDOW_UPDATE)).stream for _ in range(2)}
    assert updates == {0, asked.stream}
    server.trailers(asked.stream, [("grpc-status", "0")])
    assert len(await calling) == 3 << 20


async def test_no_more_streams_than_the_server_takes(server: Http2Server, channel: Http2Channel) -> None:
    first = call(channel, b"first")
    await server.accepted()
    asked = await server.request()
    server.settings(most_streams=1)
    server.answer(asked.stream)
    await first
    second, third = call(channel, b"second"), call(channel, b"third")
    asked = await server.request()
    server.send(PING, 0, 0, b"whatelse")
    await server.ponged(b"whatelse")
    assert asked.payload.endswith(b"second")
    server.answer(asked.stream, b"2")
    asked = await server.request()
    assert asked.payload.endswith(b"third")
    server.answer(asked.stream, b"3")
    assert [await second, await third] == [b"2", b"3"]


@pytest.mark.parametrize(
    ("code", "unsent", "status"),
    [
        (_REFUSED, True, grpc.StatusCode.UNAVAILABLE),
        (_CANCELLED, False, grpc.StatusCode.CANCELLED),
        (_ENHANCE_YOUR_CALM, False, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (2, False, grpc.StatusCode.INTERNAL),
    ],
)
async def test_a_stream_that_is_reset(
    server: Http2Server, channel: Http2Channel, code: int, unsent: bool, status: grpc.StatusCode
) -> None:
    """Only a refused one certainly had no effect."""
    calling = call(channel)
    await server.accepted()
    asked = await server.request()
    server.send(RST_STREAM, 0, asked.stream, struct.pack(">L", code))
    failed = await failure(calling)
    assert (failed.unsent, failed.code) == (unsent, status)


@pytest.mark.parametrize("transport", ["http2", "grpc"])
@pytest.mark.parametrize("code", [_CANCELLED, _ENHANCE_YOUR_CALM, _INADEQUATE_SECURITY, 0, 2])
async def test_a_stream_that_is_reset_leaves_the_outcome_open(
    server: Http2Server, transport: str, code: int
) -> None:
    """Whoever resets it, a proxy perhaps, has not said that etcd did nothing: not a refusal of etcd's."""
    one = Http2Channel(server.address, None) if transport == "http2" else LibraryChannel(server.address, None)
    method = one.unary_unary("/test.Echo/Say", request_serializer=bytes, response_deserializer=bytes)
    calling = asyncio.ensure_future(method(b"hello", timeout=30.0, metadata=()))
    await server.accepted()
    server.settings()
    asked = await server.request()
    server.send(RST_STREAM, 0, asked.stream, struct.pack(">L", code))
    said = classify(await failure(calling))
    assert (said.advice, said.definite) == (Advice.ANOTHER_MEMBER, False)
    await one.close()


async def test_a_server_that_goes_away_says_what_it_has_not_read(
    server: Http2Server, channel: Http2Channel
) -> None:
    """Up to the stream that it names it answers; later ones had no effect. What follows finds a new one."""
    first = call(channel, b"first")
    await server.accepted()
    one = await server.request()
    second = call(channel, b"second")
    await server.request()
    server.send(GOAWAY, 0, 0, struct.pack(">LL", one.stream, 0))
    failed = await failure(second)
    assert failed.unsent
    server.answer(one.stream, b"1")
    assert await first == b"1"
    third = call(channel, b"third")
    await server.accepted()
    server.answer((await server.request()).stream, b"3")
    assert await third == b"3"
    assert server.connections == 2


async def test_a_connection_that_is_cut_leaves_the_outcome_open(
    server: Http2Server, channel: Http2Channel
) -> None:
    calling = call(channel)
    await server.accepted()
    await server.request()
    server.cut()
    assert not (await failure(calling)).unsent


async def test_a_request_that_was_cut_off_half_way_had_no_effect(
    server: Http2Server, channel: Http2Channel
) -> None:
    calling = call(channel, bytes(100_000))
    await server.accepted()
    await server.next(DATA)
    server.cut()
    assert (await failure(calling)).unsent


async def test_a_member_that_is_not_there_was_told_nothing() -> None:
    async with http2_server() as gone:
        address = gone.address
    channel = Http2Channel(address, None)
    failed = await failure(call(channel))
    assert failed.unsent
    assert "failed to connect" in failed.details
    await channel.close()


async def test_a_server_that_hangs_up_at_once_keeps_nobody_waiting() -> None:
    """Neither who calls nor who wants to talk, whenever they notice."""
    listening = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
    channel = Http2Channel(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", None)
    async with asyncio.timeout(20):
        for _ in range(20):
            assert (await failure(call(channel))).code is grpc.StatusCode.UNAVAILABLE
            talk = channel.stream_stream("/test.Echo/Talk", bytes, bytes)((), lambda _: None)
            with pytest.raises(RpcFailed):
                await talk.ended()
    await channel.close()
    listening.close()


async def test_a_late_answer_is_nobodys(server: Http2Server, channel: Http2Channel) -> None:
    """The caller is told, the server too, and the answer that comes all the same harms nobody."""
    calling = call(channel, timeout=0.05)
    await server.accepted()
    asked = await server.request()
    failed = await failure(calling)
    assert (failed.code, failed.unsent) == (grpc.StatusCode.DEADLINE_EXCEEDED, False)
    assert (await server.next(RST_STREAM)).stream == asked.stream
    server.answer(asked.stream, b"late")
    again = call(channel, b"again")
    server.answer((await server.request()).stream, b"in time")
    assert await again == b"in time"


async def test_a_cancelled_call_leaves_no_stream(server: Http2Server, channel: Http2Channel) -> None:
    calling = call(channel)
    await server.accepted()
    asked = await server.request()
    calling.cancel()
    reset = await server.next(RST_STREAM)
    assert (reset.stream, reset.payload) == (asked.stream, struct.pack(">L", _CANCELLED))
    assert channel.ready is not None
    assert not channel.ready.streams


async def test_a_refusal_is_told_in_words(server: Http2Server, channel: Http2Channel) -> None:
    calling = call(channel)
    await server.accepted()
    server.refuse((await server.request()).stream, 5, "etcdserver: requested lease not found %F0%9F%94%92")
    failed = await failure(calling)
    assert (failed.code, failed.unsent) == (grpc.StatusCode.NOT_FOUND, False)
    assert failed.details == "etcdserver: requested lease not found 🔒"


@pytest.mark.parametrize("answer", [b"\x01\0\0\0\x02ok", b"\0\0\0\0\x09ok", b""])
async def test_an_answer_that_is_none(server: Http2Server, channel: Http2Channel, answer: bytes) -> None:
    """Compressed, too short, or nothing at all: the request may have been carried out."""
    calling = call(channel)
    await server.accepted()
    asked = await server.request()
    server.open_answer(asked.stream)
    server.send(DATA, 0, asked.stream, answer)
    server.trailers(asked.stream, [("grpc-status", "0")])
    failed = await failure(calling)
    assert (failed.code, failed.unsent) == (grpc.StatusCode.INTERNAL, False)


@pytest.mark.parametrize(
    "broken",
    [
        struct.pack(">BHBBL", 1, 0, DATA, 0, 1),  # a frame of 64 kB
        struct.pack(">BHBBL", 0, 1, HEADERS, 4, 1) + b"\xff",  # an index of no table
        struct.pack(">BHBBL", 0, 1, 9, 4, 1) + b"\x88",  # a continuation of nothing
        struct.pack(">BHBBL", 0, 4, 5, 4, 1) + bytes(4),  # a push
        struct.pack(">BHBBL", 0, 1, RST_STREAM, 0, 1) + b"x",
    ],
)
async def test_a_server_that_breaks_the_protocol_is_left(
    server: Http2Server, channel: Http2Channel, broken: bytes
) -> None:
    calling = call(channel)
    await server.accepted()
    await server.request()
    server.writer.write(broken)
    failed = await failure(calling)
    assert "broke the protocol" in failed.details
    assert not failed.unsent


async def test_a_conversation_is_heard_as_it_comes_and_ends_with_its_trailers(
    server: Http2Server, channel: Http2Channel
) -> None:
    method: StreamMethod = channel.stream_stream("/test.Echo/Talk", bytes, bytes)
    heard: list[bytes] = []
    talk = method((), heard.append)
    talk.say(b"before it is open")
    ending = asyncio.create_task(talk.ended())
    await server.accepted()
    said = await server.next(DATA)
    assert said.payload[5:] == b"before it is open"
    server.open_answer(said.stream)
    for word in (b"one", b"two"):
        server.say(said.stream, word, pieces=2)
    await until(lambda: heard == [b"one", b"two"], "heard")
    talk.say(b"and later")
    assert (await server.next(DATA)).payload[5:] == b"and later"
    server.trailers(said.stream, [("grpc-status", "14"), ("grpc-message", "no leader")])
    with pytest.raises(RpcFailed, match="no leader"):
        await ending


async def test_a_channel_that_is_closed_ends_what_is_under_way(
    server: Http2Server, channel: Http2Channel
) -> None:
    calling = call(channel)
    await server.accepted()
    await server.request()
    await channel.close()
    assert not (await failure(calling)).unsent
    assert (await failure(call(channel))).unsent


def test_long_headers_are_written_with_their_length() -> None:
    from hpack import Decoder

    long = [(b"token", b"t" * size) for size in (0, 126, 127, 128, 254, 255, 300, 20_000)]
    assert list(Decoder().decode(header_block(long), raw=True)) == long
