"""A process that contends for a lock: the program itself, and the handle by which a test steers it.

The program connects, lets as many waiters go as each line on its standard input says, and writes one JSON
line for each grant and each failure. It ends when its standard input does, so it never outlives the test.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncdlock
from harness.servers import RedisNode
from tests.redis_queue.support import PATIENT, queue_url

_ROOT = Path(__file__).parents[2]


class Held(NamedTuple):
    """One holding; times are those of the monotonic clock that all processes of a machine share."""

    owner: str
    fence: int
    at: int
    until: int


class Contender:
    """A child process with its own client and its own waiters."""

    def __init__(self, process: asyncio.subprocess.Process, waiters: int) -> None:
        self._process = process
        self._waiters = waiters
        self._changed = asyncio.Event()
        self._said: set[str] = set()
        self.grants: list[Held] = []
        """Holdings that have ended, in order."""
        self.holding: dict[str, int] = {}
        """Owner and fence of what it holds now."""
        self.failures: list[str] = []

    @classmethod
    @asynccontextmanager
    async def started(
        cls,
        node: RedisNode,
        key: str,
        *,
        waiters: int = 1,
        rounds: int = 1,
        hold: float = 0.0,
        ttl: float = 10.0,
        url: str | None = None,
        **options: Any,
    ) -> "AsyncIterator[Contender]":
        """A process that is connected and waits for `go`; killed at the end if it still runs."""
        work = {
            "url": url or queue_url(node),
            "options": {"local_handoffs": 0, **options},
            "key": key,
            "waiters": waiters,
            "rounds": rounds,
            "hold": hold,
            "ttl": ttl,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            json.dumps(work),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=_ROOT,
        )
        contender = cls(process, waiters)
        reading = asyncio.create_task(contender._read())
        try:
            await contender.until(lambda: "ready" in contender._said)
            yield contender
        finally:
            if process.returncode is None:
                contender.resume()
                assert process.stdin is not None
                process.stdin.close()
                try:
                    await asyncio.wait_for(process.wait(), PATIENT)
                except TimeoutError:
                    process.kill()
                    raise
            await reading

    @classmethod
    @asynccontextmanager
    async def several(
        cls, count: int, node: RedisNode, key: str, **work: Any
    ) -> "AsyncIterator[list[Contender]]":
        """So many of them, started side by side."""
        async with AsyncExitStack() as stack:
            async with asyncio.TaskGroup() as side_by_side:
                starting = [
                    side_by_side.create_task(stack.enter_async_context(cls.started(node, key, **work)))
                    for _ in range(count)
                ]
            yield [start.result() for start in starting]

    def go(self, count: int | None = None) -> None:
        """Let so many more of its waiters acquire; all of them if no number is given."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count or self._waiters}\n".encode())

    async def done(self) -> None:
        """Wait until every waiter has had all its rounds."""
        await self.until(lambda: "done" in self._said)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that the process says makes the condition true."""
        async with asyncio.timeout(PATIENT):
            while not condition():
                assert self._process.returncode is None, "the contender ended"
                await self._changed.wait()
                self._changed.clear()

    async def kill(self) -> None:
        """kill -9; returns when it is gone."""
        self._process.kill()
        await self._process.wait()

    def pause(self) -> None:
        """Freeze it; its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)
        while _state(self._process.pid) != "T":
            time.sleep(0.001)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event, *details = json.loads(line)
            if event == "granted":
                owner, fence = details
                self.holding[owner] = fence
            elif event == "held":
                held = Held(*details)
                self.holding.pop(held.owner, None)
                self.grants.append(held)
            elif event == "failed":
                self.failures.append(details[0])
            else:
                self._said.add(event)
            self._changed.set()
        self._changed.set()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# The program


def _say(*event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


async def _contend(client: asyncdlock.LockClient, work: dict[str, Any]) -> None:
    for _ in range(work["rounds"]):
        try:
            handle = await client.acquire(work["key"], ttl=work["ttl"])
            at = time.monotonic_ns()
            _say("granted", handle.owner, handle.fence)
            if work["hold"]:
                await asyncio.sleep(work["hold"])
            until = time.monotonic_ns()
            await handle.release()
        except asyncdlock.LockError as error:
            _say("failed", f"{type(error).__name__}: {error}")
        else:
            _say("held", handle.owner, handle.fence, at, until)


async def _main(work: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with asyncdlock.connect(work["url"], **work["options"]) as client:
        warm_up = await client.acquire(f"{work['key']} warm-up {os.getpid()}")
        await warm_up.release()
        _say("ready")
        contending: list[asyncio.Task[None]] = []
        while len(contending) < work["waiters"] and (line := await commands.readline()):
            contending += [asyncio.create_task(_contend(client, work)) for _ in range(int(line))]
        ended = asyncio.create_task(commands.read())
        finished = asyncio.gather(*contending)
        await asyncio.wait((ended, finished), return_when=asyncio.FIRST_COMPLETED)
        if finished.done():
            finished.result()
            _say("done")
            await ended
        else:
            for task in contending:
                task.cancel()
            await asyncio.wait(contending)
            finished.exception()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main(json.loads(sys.argv[1])))
