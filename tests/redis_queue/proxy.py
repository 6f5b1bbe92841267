"""A TCP proxy in front of a server that can swallow what the server says, and cut its connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from harness.servers import RedisNode


class Proxy:
    """Passes bytes on in both directions, until told otherwise."""

    def __init__(self, node: RedisNode) -> None:
        self._node = node
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._swallowing = False
        self.swallowed = 0
        """Bytes from the server that no client ever got."""
        self.port = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, node: RedisNode) -> "AsyncIterator[Proxy]":
        proxy = cls(node)
        listener = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        proxy.port = listener.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            listener.close()
            proxy.cut()
            while proxy._tasks:
                await asyncio.wait(proxy._tasks)

    @property
    def url(self) -> str:
        return f"redis-queue://127.0.0.1:{self.port}/0"

    def swallow(self) -> None:
        """From now on, what the server says is lost; what clients say still reaches it."""
        self._swallowing = True

    def cut(self) -> None:
        """Close every connection; new ones work again."""
        self._swallowing = False
        for writer in self._writers:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(self._node.host, self._node.port)
        self._writers |= {writer, to_there}
        for source, sink, spoken_by_server in ((reader, to_there, False), (there, writer, True)):
            task = asyncio.create_task(self._pass_on(source, sink, spoken_by_server))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, by_server: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if by_server and self._swallowing:
                    self.swallowed += len(data)
                else:
                    sink.write(data)
        sink.close()
        self._writers.discard(sink)
        with contextlib.suppress(OSError):
            await sink.wait_closed()
