"""Real processes at the cost of a fork: started, talked to, frozen and killed by whoever runs the trials."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
from harness.experiments.lab.track import Event, NeverHappened, Track
from harness.faults import FaultJournal
from harness.servers import guard

Heard = Callable[[Mapping[str, Any]], None]
"""Called with each message of a member: `event`, `at` in nanoseconds of the monotonic clock, details."""

_ROOT = Path(harness.__file__).parents[1]
_MODULE = "harness.experiments.trials.nursery"
_LOADS_WITHIN = 60.0
_ENDS_WITHIN = 30.0
_LONGEST_LINE = 1 << 20


def into(track: Track, journal: FaultJournal) -> Heard:
    """Note what a member says as events of `track`, on the journal's clock."""

    def heard(message: Mapping[str, Any]) -> None:
        details = dict(message)
        track.add(Event(details.pop("at") - journal.origin, details.pop("event"), details))

    return heard


class Member:
    """One process of a crew."""

    def __init__(
        self, name: str, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.name = name
        self.pid = pid
        self.over = asyncio.Event()
        """It has ended, by itself or by kill -9, and all that it said was heard."""
        self._reader = reader
        self._writer = writer

    def tell(self, message: Mapping[str, Any]) -> None:
        """Say something to it; nothing happens when it has ended."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def hang_up(self) -> None:
        """There will be no more messages for it."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    async def ended(self, within: float = _ENDS_WITHIN) -> None:
        """Return when it has ended.

        :raises NeverHappened: it does not.
        """
        try:
            async with asyncio.timeout(within):
                await self.over.wait()
        except TimeoutError:
            raise NeverHappened(f"process {self.name} did not end within {within:g} s") from None

    def kill(self) -> None:
        """kill -9, also when it is frozen."""
        if not self.over.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def listen(self, heard: Heard) -> None:
        """Pass on what it says until it has ended."""
        try:
            while line := await self._reader.readline():
                if line.endswith(b"\n"):  # else it was killed half-way
                    heard(json.loads(line))
        except ConnectionResetError:
            pass  # killed with messages to it unread
        finally:
            self.over.set()
            self._writer.close()


class Crew:
    """A nursery and the members that were forked from it; see `open_crew`."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()
        """The nursery waits for orders."""
        self._orders: asyncio.StreamWriter | None = None
        self._count = 0
        self._expected: dict[int, asyncio.Future[tuple[int, asyncio.StreamReader, asyncio.StreamWriter]]] = {}

    @contextlib.asynccontextmanager
    async def member(self, name: str, role: str, spec: object, heard: Heard) -> AsyncIterator[Member]:
        """A process that runs `role`, `module:function`, for the length of an `async with`.

        It is killed at the end if it still runs.

        :raises NeverHappened: it did not start.
        """
        assert self._orders is not None
        self._count += 1
        expected = self._expected[self._count] = asyncio.get_running_loop().create_future()
        order = {"id": self._count, "role": role, "spec": spec}
        self._orders.write(json.dumps(order).encode() + b"\n")
        try:
            async with asyncio.timeout(_LOADS_WITHIN):
                pid, reader, writer = await expected
        except TimeoutError:
            raise NeverHappened(f"process {name} did not start within {_LOADS_WITHIN:g} s") from None
        member = Member(name, pid, reader, writer)
        listening = asyncio.create_task(member.listen(heard))
        try:
            yield member
        finally:
            member.kill()
            await asyncio.wait([listening])

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody connects: the nursery, or a member that was just forked."""
        hello = json.loads(await reader.readline())
        if "nursery" in hello:
            self._orders = writer
            self.loaded.set()
            return
        expected = self._expected.pop(hello["member"])
        if expected.done():  # whoever wanted it was cancelled meanwhile
            os.kill(hello["pid"], signal.SIGKILL)
            writer.close()
        else:
            expected.set_result((hello["pid"], reader, writer))

    def close(self) -> None:
        if self._orders is not None:
            self._orders.close()


@contextlib.asynccontextmanager
async def open_crew(*modules: str, log: Path) -> AsyncIterator[Crew]:
    """A crew for the length of an `async with`, whose members have loaded `modules`.

    What they print, warnings of the library for example, goes to the file `log`.

    :raises NeverHappened: the modules cannot be loaded; the message is the last line of `log`.
    """
    crew = Crew()
    folder = Path(tempfile.mkdtemp(prefix="asyncdlock-crew-"))
    try:
        path = folder / "crew.sock"
        server = await asyncio.start_unix_server(crew.accept, path, limit=_LONGEST_LINE)
        try:
            async with _nursery(path, modules, log) as process:
                await _until_loaded(crew, process, log)
                yield crew
        finally:
            crew.close()
            server.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def _nursery(
    socket: Path, modules: Sequence[str], log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    # Without the guard the crew would outlive an experiment that is killed.
    guarded = [sys.executable, "-I", "-S", guard.__file__, "pdeathsig", str(os.getpid())]
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(guarded if sys.platform == "linux" else []),
            *(sys.executable, "-m", _MODULE, str(socket), *modules),
            cwd=_ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us: we end it ourselves
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _until_loaded(crew: Crew, process: asyncio.subprocess.Process, log: Path) -> None:
    loaded, ended = asyncio.create_task(crew.loaded.wait()), asyncio.create_task(process.wait())
    try:
        await asyncio.wait([loaded, ended], timeout=_LOADS_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        if not crew.loaded.is_set():
            raise NeverHappened(f"no processes could be prepared: {_last_line(log)}")
    finally:
        for task in (loaded, ended):
            task.cancel()
        await asyncio.wait([loaded, ended])


def _last_line(log: Path) -> str:
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return said[-1] if said else "nothing was said"
