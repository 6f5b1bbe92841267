"""Redis's own log of every command (MONITOR), including those that scripts call, in order."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from harness.servers.redis_node import RedisNode

_LONGEST_LINE = 1 << 22
_AGAIN_AFTER = 0.02
_LINE = re.compile(rb"\+?(\d+\.\d+) \[\d+ ([^\]]+)\] (.*)")
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}

# All that the replay has to know of a lock, in one step of the server: its line in the log says when.
_LOOK = """
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '0',
        redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')}
"""
MARK = "asyncdlock-trace"


@dataclass(frozen=True, slots=True)
class Call:
    """A command of a client, with the commands that its script called."""

    at: float
    """Seconds since the epoch, by the server's clock."""
    words: Sequence[str]
    called: list[Sequence[str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LockSnapshot:
    """One lock, as it was when the log came to `mark`."""

    mark: str
    lock: str
    holder: str
    pttl: int
    counter: int
    queue: Sequence[tuple[str, float]]


@dataclass(slots=True)
class MonitorLog:
    """What was recorded. It may have gaps; behind each, every lock is looked at again."""

    calls: list[Call] = field(default_factory=list)
    snapshots: dict[str, list[LockSnapshot]] = field(default_factory=dict)
    gaps: list[int] = field(default_factory=list)
    """How many calls had been recorded when the recording broke off; of the last one some may be missing."""

    def write(self, path: Path) -> None:
        """One line a call, for whoever wants to know how it came about.

        :raises OSError: it cannot be written.
        """
        with path.open("w") as file:
            for call in self.calls:
                file.write(json.dumps([call.at, call.words, call.called], ensure_ascii=True) + "\n")

    def add(self, line: bytes) -> None:
        """One line of MONITOR; any other is passed over."""
        if (found := _LINE.match(line)) is None:
            return
        at, who, rest = found.groups()
        words = [_unescaped(word) for word in _WORD.findall(rest)]
        if who != b"lua":
            self.calls.append(Call(float(at), words))
        elif self.calls:
            self.calls[-1].called.append(words)


def _unescaped(word: bytes) -> str:
    def plain(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        if escape.startswith(b"x") and len(escape) == 3:
            return bytes.fromhex(escape[1:].decode())
        return _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(plain, word).decode(errors="surrogateescape")


@contextlib.asynccontextmanager
async def recorded(node: RedisNode, locks: Sequence[tuple[str, str, str]]) -> AsyncIterator[MonitorLog]:
    """Records for the length of an `async with`, over crashes of the server as well.

    `locks`: of each its key, its fence counter and its queue, by their names on the server.
    """
    log, begun = MonitorLog(), asyncio.Event()
    recording = asyncio.create_task(_record(node, locks, log, begun))
    try:
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait({recording, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        yield log
        if node.running:
            with contextlib.suppress(OSError, RedisError):
                # What was done before this line is in the log once the line is.
                last = await _look(node, locks, log)
                async with asyncio.timeout(10.0):
                    while not any(last in call.words for call in log.calls[-50:]):  # noqa: ASYNC110
                        await asyncio.sleep(_AGAIN_AFTER)
    finally:
        recording.cancel()
        await asyncio.wait({recording})


async def _record(
    node: RedisNode, locks: Sequence[tuple[str, str, str]], log: MonitorLog, begun: asyncio.Event
) -> None:
    while True:
        with contextlib.suppress(OSError, RedisError, TimeoutError):
            reader, writer = await asyncio.open_connection(node.host, node.port, limit=_LONGEST_LINE)
            try:
                writer.write(b"MONITOR\r\n")
                if await reader.readline() == b"+OK\r\n":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(_begin(node, locks, log, begun))
                        group.create_task(_read(reader, log))
            except* (OSError, RedisError, TimeoutError, EOFError):
                pass
            finally:
                writer.close()
        log.gaps.append(len(log.calls))
        await asyncio.sleep(_AGAIN_AFTER)


async def _begin(
    node: RedisNode, locks: Sequence[tuple[str, str, str]], log: MonitorLog, begun: asyncio.Event
) -> None:
    await _look(node, locks, log)
    begun.set()


async def _read(reader: asyncio.StreamReader, log: MonitorLog) -> None:
    while line := await reader.readline():
        log.add(line)
    raise EOFError


async def _look(node: RedisNode, locks: Sequence[tuple[str, str, str]], log: MonitorLog) -> str:
    mark = f"{MARK} {len(log.snapshots)}"
    log.snapshots[mark] = []
    for lock, counter, queue in locks:
        found: Any = await node.command("EVAL", _LOOK, 3, lock, counter, queue, mark)
        holder, pttl, fence, waiting = found
        members = [(name, float(score)) for name, score in zip(waiting[::2], waiting[1::2], strict=True)]
        log.snapshots[mark].append(LockSnapshot(mark, lock, holder, pttl, int(fence), members))
    return mark
