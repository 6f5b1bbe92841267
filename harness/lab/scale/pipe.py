"""One connection to a Redis that is sent commands as fast as it takes them: raw pipelined RESP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import unquote, urlsplit

from asyncdlock.backend import redact
from harness.config import UsageError

_WINDOW = 32
"""Batches on their way: the server always finds the next one in its buffer."""
_LAST = "harness-gen-last"
"""Echoed after the last batch: whoever reads it has read everything."""


class Pipe:
    """One connection that sends commands without waiting, and counts what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, *words: str | int) -> bytes:
        """One command that answers with a single line or a bulk string.

        :raises UsageError: the server refused it.
        """
        self._writer.write(command(*words))
        line = await self._reader.readline()
        if line.startswith(b"-"):
            raise UsageError(f"the server refused {words[0]}: {line[1:].decode(errors='replace').strip()}")
        if line.startswith(b"$") and not line.startswith(b"$-1"):
            return (await self._reader.readexactly(int(line[1:]) + 2))[:-2]
        return line[1:].strip()

    async def send(
        self, batches: Iterator[bytes], replies: int, sent: Callable[[int], None] = lambda count: None
    ) -> int:
        """Send all batches, each answered by `replies` lines; returns how many were `nil`.

        :raises UsageError: the server refused a command, or hung up.
        """
        places = asyncio.Semaphore(_WINDOW)
        counting = asyncio.create_task(self._count(places, replies, sent))
        try:
            for batch in batches:
                if places.locked():
                    # Whoever waits for a place must also hear that none will come.
                    turn = asyncio.create_task(places.acquire())
                    await asyncio.wait((turn, counting), return_when=asyncio.FIRST_COMPLETED)
                    if counting.done():
                        turn.cancel()
                        break
                else:
                    await places.acquire()
                self._writer.write(batch)
            self._writer.write(command("ECHO", _LAST))
            return await counting
        finally:
            counting.cancel()

    async def _count(
        self,
        places: asyncio.Semaphore,
        replies: int,
        sent: Callable[[int], None],
    ) -> int:
        """Read until the echo of `_LAST`; every `replies` lines free a place."""
        answered = absent = freed = 0
        tail = b""
        while True:
            data = await self._reader.read(1 << 20)
            if not data:
                raise UsageError("the server closed the connection while it was being filled")
            # What was cut off belongs to this piece: lines are counted whole.
            data = tail + data
            whole = data.rfind(b"\r\n") + 2
            data, tail = data[:whole], data[whole:]
            answered += data.count(b"\r\n")
            absent += data.count(b"$-1\r\n")
            if data.startswith(b"-") or b"\n-" in data:
                text = data[data.find(b"-") :].split(b"\r\n")[0].decode(errors="replace")
                raise UsageError(f"the server refused a command: {text[1:]}")
            while freed + replies <= answered:
                freed += replies
                places.release()
                sent(1)
            if data.endswith(_LAST.encode() + b"\r\n"):
                return absent


@contextlib.asynccontextmanager
async def open_pipe(url: str) -> AsyncIterator[Pipe]:
    """A connection to the Redis of a lock URL.

    :raises UsageError: no such server, or none that this can fill.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 6379
    except ValueError:
        raise UsageError(f"bad host or port in {redact(url)!r}") from None
    if parts.scheme not in ("redis", "redis-queue", "unix"):
        raise UsageError(f"gen fills redis://, redis-queue:// and unix:// servers, not {redact(url)!r}")
    try:
        if parts.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(parts.path, limit=1 << 22)
        else:
            reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
    except OSError as error:
        raise UsageError(
            f"cannot reach {redact(url)}: {error.strerror or error}; is the server running?"
        ) from None
    pipe = Pipe(reader, writer)
    try:
        if parts.password:
            name = [unquote(parts.username)] if parts.username else []
            await pipe.ask("AUTH", *name, unquote(parts.password))
        database = parts.path.strip("/") if parts.scheme != "unix" else ""
        if database.isdecimal():
            await pipe.ask("SELECT", database)
        yield pipe
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def info(reply: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def command(*words: str | int) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    parts += [b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in map(str, words)]
    return b"".join(parts)
