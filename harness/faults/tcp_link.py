"""A TCP proxy between one client and one server, whose two directions can be held, lose bytes or lag.

    client ──▶ Link (127.0.0.1:port) ──▶ server

The proxy only carries bytes. What a partition is to TCP, `hold` is here: nothing arrives, nothing
fails, and what was sent arrives after all when the partition heals. `lose` is for the case that it
never does: the bytes are thrown away, and since a stream with a hole in it is of no use, its
connection is broken off when the fault ends. New connections are always accepted, as the kernel of a
server behind a broken switch never would; they carry nothing until the link is mended.
"""

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Callable

from harness.servers.ports import free_port

_HOST = "127.0.0.1"
_CHUNK = 1 << 16


class Way(enum.Enum):
    TO_SERVER = "to server"
    TO_CLIENT = "to client"


BOTH = (Way.TO_SERVER, Way.TO_CLIENT)


class _Direction:
    """One direction of a link: what happens to bytes that go this way."""

    def __init__(self) -> None:
        self.lag = 0.0
        self.loses = False
        self.bytes_seen = 0
        """Everything that wanted to pass, whether it did or not."""
        self._open = asyncio.Event()
        self._open.set()
        self._seen = asyncio.Condition()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    async def passable(self) -> None:
        await self._open.wait()

    async def saw(self, count: int) -> None:
        async with self._seen:
            self.bytes_seen += count
            self._seen.notify_all()

    async def until_seen(self, more_than: int) -> None:
        async with self._seen:
            await self._seen.wait_for(lambda: self.bytes_seen > more_than)


class Link:
    """The proxy in front of `target` (`host:port`); see `open_link`."""

    def __init__(self, target: str, *, name: str = "", port: int | None = None) -> None:
        self.target = target
        self.name = name or f"link to {target}"
        self.port = port or free_port()
        self.watch: Callable[[Way, bytes], None] = lambda way, data: None
        """Is shown every piece before it is passed on, so that a fault can begin at an exact message."""
        self._lanes = {way: _Direction() for way in Way}
        self._pipes: set[_Tunnel] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.accepted = 0
        """How many connections have come so far."""

    @property
    def clients(self) -> int:
        """How many connections have a client that has not hung up; a server may forget to close its end."""
        return sum(not pipe.hung_up for pipe in self._pipes)

    @property
    def address(self) -> str:
        """Where the client must connect instead of `target`."""
        return f"{_HOST}:{self.port}"

    async def start(self) -> None:
        """:raises OSError: the port is taken."""
        self._server = await asyncio.start_server(self._accept, _HOST, self.port)

    async def aclose(self) -> None:
        """Stop listening and break off every connection."""
        if self._server is not None:
            self._server.close()
        self.break_off()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hold(self, *ways: Way) -> None:
        """Keep bytes back, from now on, until `mend`."""
        for way in ways or BOTH:
            self._lanes[way].hold()

    def lose(self, *ways: Way) -> None:
        """Throw bytes away, from now on, until `mend`."""
        for way in ways or BOTH:
            self._lanes[way].loses = True

    def lag(self, seconds: float, *ways: Way) -> None:
        """Let every piece arrive so much later; pieces stay in order."""
        for way in ways or BOTH:
            self._lanes[way].lag = seconds

    def mend(self, *ways: Way) -> None:
        """Let bytes pass again, first those that were held; break off what has lost some."""
        for way in ways or BOTH:
            lane = self._lanes[way]
            lane.loses, lane.lag = False, 0.0
            lane.let_go()
        for pipe in [pipe for pipe in self._pipes if pipe.has_hole]:
            pipe.break_off()

    def break_off(self) -> None:
        """Reset every connection of now; new ones are accepted."""
        for pipe in list(self._pipes):
            pipe.break_off()

    def lead_to(self, target: str) -> None:
        """From now on to another server (`host:port`); the connections of now are reset."""
        self.target = target
        self.break_off()

    def bytes_seen(self, way: Way) -> int:
        """How many bytes have come so far in this direction, whether they passed or not."""
        return self._lanes[way].bytes_seen

    async def until_more_than(self, count: int, way: Way) -> None:
        """Return when more than `count` bytes have come in this direction: a reply, say, that is held."""
        await self._lanes[way].until_seen(count)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        host, _, port = self.target.rpartition(":")
        try:
            server_reader, server_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        pipe = _Tunnel(reader, writer, server_writer)
        self._pipes.add(pipe)
        self.accepted += 1
        try:
            await asyncio.gather(
                self._carry(Way.TO_SERVER, pipe, reader, server_writer),
                self._carry(Way.TO_CLIENT, pipe, server_reader, writer),
            )
        except (OSError, RuntimeError, asyncio.CancelledError):
            # Reset by either end or by us, or the link is closed: the end of this connection. uvloop answers
            # to whoever touches a transport that was reset with RuntimeError.
            pass
        finally:
            pipe.break_off()
            self._pipes.discard(pipe)

    async def _carry(
        self, way: Way, pipe: "_Tunnel", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await pipe.carry(reader, writer, self._lanes[way], lambda data: self.watch(way, data))


class _Tunnel:
    def __init__(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._from_client = reader
        self._writers = client, server
        self.has_hole = False

    @property
    def hung_up(self) -> bool:
        """The client has said all that it will ever say."""
        return self._from_client.at_eof()

    async def carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lane: _Direction,
        watch: Callable[[bytes], None],
    ) -> None:
        """Move bytes one way until the sender closes; raises OSError when the connection breaks."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(self._deliver(on_the_way, writer, lane))
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(_CHUNK):
                watch(data)
                await lane.saw(len(data))
                if lane.loses:
                    self.has_hole = True
                elif not self.has_hole:
                    on_the_way.put_nowait((loop.time() + lane.lag, data))
            on_the_way.put_nowait((loop.time() + lane.lag, b""))
            await delivering
        finally:
            delivering.cancel()
            await asyncio.wait([delivering])

    async def _deliver(
        self, on_the_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter, lane: _Direction
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await on_the_way.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await lane.passable()
            if not data:
                # The other side may be gone already; uvloop then has no half to close.
                if writer.can_write_eof() and not writer.transport.is_closing():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()

    def break_off(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def open_link(target: str, *, name: str = "", port: int | None = None) -> AsyncIterator[Link]:
    """A link for the length of an `async with`: connect to its `address` instead of `target`."""
    link = Link(target, name=name, port=port)
    await link.start()
    try:
        yield link
    finally:
        await link.aclose()
