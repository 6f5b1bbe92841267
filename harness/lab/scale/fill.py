"""Fills a Redis with short-lived locks, as fast as it takes them.

The keys are those that as many acquisitions would leave: `SET key owner NX PX ttl` and, unless told
otherwise, `INCR fence:{key}`. The same seed gives the same keys and owners. They are written as raw
pipelined RESP: all keys have one length, so that a batch is a single `%` on a template, which costs less
than the server needs to read it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from random import Random
from urllib.parse import unquote, urlsplit

from asyncdlock.backend import redact
from harness.config import UsageError

BATCH = 1000
_WINDOW = 32
"""Batches on their way: the server always finds the next one in its buffer."""
_LIMIT_KEYS = 100_000
_LAST = "harness-gen-last"
"""Echoed after the last batch: whoever reads it has read everything."""
# A prime above every number of keys: `a * i + b` modulo it visits each key once, in no apparent order.
_PRIME = 4_294_967_291
MOST_KEYS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a seed, in their order."""

    seed: int

    @property
    def step(self) -> tuple[int, int]:
        rng = Random(self.seed)
        return rng.randrange(1, 1 << 20), rng.randrange(_PRIME)

    def numbers(self, start: int, stop: int) -> list[int]:
        """The names of the keys from the `start`-th on, as numbers."""
        factor, offset = self.step
        return [(factor * index + offset) % _PRIME for index in range(start, stop)]

    def key(self, index: int) -> str:
        """The name of the `index`-th lock."""
        return f"account:{self.numbers(index, index + 1)[0]:010d}"


@dataclass(frozen=True, slots=True)
class Filled:
    keys: int
    new: int
    """Locks that did not exist already."""
    seconds: float
    per_s: float
    raw_limit_per_s: float
    """What the same server takes of the same commands when nothing has to be made up."""
    commands: int
    used_memory: int
    """Of the server, after."""
    finished: float
    """When, on the monotonic clock that all processes of a machine share."""

    @property
    def share_of_limit(self) -> float:
        return self.per_s / self.raw_limit_per_s if self.raw_limit_per_s else 0.0


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
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "redis-queue", "unix"):
        raise UsageError(f"gen fills redis://, redis-queue:// and unix:// servers, not {redact(url)!r}")
    try:
        if parts.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(parts.path, limit=1 << 22)
        else:
            host, port = parts.hostname or "127.0.0.1", parts.port or 6379
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


async def fill(
    url: str,
    keys: int,
    *,
    seed: int = 1,
    ttl: float = 60.0,
    fences: bool = True,
    progress: Callable[[int], None] = lambda keys: None,
) -> Filled:
    """Write the locks of a seed and tell how fast that was; `progress` hears of every batch.

    A cancellation leaves the keys that were written until then; they expire by themselves, fences do not.

    :raises UsageError: the server cannot be reached or refuses.
    """
    per_key = 2 if fences else 1
    async with open_pipe(url) as pipe:
        limit = await _raw_limit(pipe, keys, ttl, fences)
        began = time.perf_counter()
        absent = await pipe.send(
            _batches(Keys(seed), keys, ttl, fences),
            BATCH * per_key,
            lambda batches: progress(batches * BATCH),
        )
        rest = keys % BATCH
        if rest:
            last = _batch(Keys(seed), keys - rest, keys, ttl, fences)
            absent += await pipe.send(iter([last]), rest * per_key)
            progress(rest)
        finished = time.perf_counter()
        seconds = finished - began
        memory = await used_memory(pipe)
        # Before and after: a limit that was measured in an unlucky moment is none.
        limit = max(limit, await _raw_limit(pipe, keys, ttl, fences))
    return Filled(keys, keys - absent, seconds, keys / seconds, limit, keys * per_key, memory, finished)


async def used_memory(pipe: Pipe) -> int:
    """What Redis says that its data takes, in bytes."""
    return int(info(await pipe.ask("INFO", "memory"))["used_memory"])


def info(reply: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


async def _raw_limit(pipe: Pipe, keys: int, ttl: float, fences: bool) -> float:
    """Keys per second of the same commands on other new keys, made beforehand; they are removed again."""
    count = min(keys, _LIMIT_KEYS) // BATCH or 1
    names = [list(range(start, start + BATCH)) for start in range(_PRIME, _PRIME + count * BATCH, BATCH)]
    batches = [_render(numbers, numbers, ttl, fences) for numbers in names]
    began = time.perf_counter()
    await pipe.send(iter(batches), BATCH * (2 if fences else 1))
    seconds = time.perf_counter() - began
    await pipe.send(map(_removal, names), BATCH)
    return count * BATCH / seconds


def _removal(numbers: list[int]) -> bytes:
    names = (f"account:{number:010d}" for number in numbers)
    return b"".join(command("DEL", name, f"fence:{{{name}}}") for name in names)


def _batches(keys: Keys, count: int, ttl: float, fences: bool) -> Iterator[bytes]:
    for start in range(0, count - count % BATCH, BATCH):
        yield _batch(keys, start, start + BATCH, ttl, fences)


def _batch(keys: Keys, start: int, stop: int, ttl: float, fences: bool) -> bytes:
    return _render(keys.numbers(start, stop), list(range(start, stop)), ttl, fences)


def _render(numbers: list[int], owners: list[int], ttl: float, fences: bool) -> bytes:
    milliseconds = str(round(ttl * 1000))
    lock = command("SET", "account:%010d", "00000000-0000-4000-8000-%012d", "NX", "PX", milliseconds)
    # The lengths that RESP wants are those of what the templates become.
    template = lock.replace(b"$13", b"$18").replace(b"$29", b"$36")
    values: list[int] = []
    if fences:
        template += command("INCR", "fence:{account:%010d}").replace(b"$21", b"$26")
        for number, owner in zip(numbers, owners, strict=True):
            values += (number, owner, number)
    else:
        for number, owner in zip(numbers, owners, strict=True):
            values += (number, owner)
    return template * len(numbers) % tuple(values)


def command(*words: str | int) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    parts += [b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in map(str, words)]
    return b"".join(parts)
