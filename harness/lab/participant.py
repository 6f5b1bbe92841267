"""Participants: real processes at the cost of a fork; an experiment talks to them, freezes and kills them."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import harness
from harness.lab.event import Event, Heard
from harness.lab.forkserver import Role, name_of
from harness.lab.track import NeverHappened, Track
from harness.servers.child import Child
from harness.servers.unix_sockets import socket_folder

_ROOT = Path(harness.__file__).parents[1]
_MODULE = "harness.lab.forkserver"
_LOADS_WITHIN = 60.0
_ENDS_WITHIN = 30.0
_LONGEST_LINE = 1 << 20

_Connected = tuple[int, asyncio.StreamReader, asyncio.StreamWriter]


class Participant:
    """One process; see `Forkserver.participant`."""

    def __init__(self, name: str, connected: _Connected, track: Track | None = None) -> None:
        self.name = name
        self.pid, self._reader, self._writer = connected
        self.track = track or Track(name, "")
        """What it did, where it is one participant and not several."""
        self.over = asyncio.Event()
        """It has ended, by itself or by kill -9, and all that it said was heard."""

    def tell(self, event: str, /, **details: Any) -> None:
        """Say something to it; nothing happens when it has ended."""
        if not self._writer.is_closing():
            self._writer.write(Event.happened(event, **details).line())

    def go(self) -> None:
        """Let it begin, or go on."""
        self.tell("go")

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
                    heard(Event.parse(line))
        except ConnectionResetError:
            pass  # killed with messages to it unread
        finally:
            self.over.set()
            self.track.end("its process has ended")
            self._writer.close()


class Forkserver:
    """The process that participants are forked from, seen by the experiment; see `open_forkserver`."""

    def __init__(self, log: Path) -> None:
        self.loaded = asyncio.Event()
        """It waits for orders."""
        self._log = log
        self._orders: asyncio.StreamWriter | None = None
        self._watch: asyncio.Task[Any] | None = None
        self._count = 0
        self._expected: dict[int, asyncio.Future[_Connected]] = {}

    @contextlib.asynccontextmanager
    async def participant(
        self, name: str, role: Role, spec: Mapping[str, Any], heard: Heard, track: Track | None = None
    ) -> AsyncIterator[Participant]:
        """A process that runs `role(spec, channel)`, for the length of an `async with`.

        It is killed at the end if it still runs.

        :raises NeverHappened: it did not start; the message is the last line of the log.
        """
        if self._orders is None or not self.loaded.is_set():
            raise self.failure()
        self._count += 1
        expected = self._expected[self._count] = asyncio.get_running_loop().create_future()
        order = Event.happened("fork", id=self._count, role=name_of(role), spec=spec)
        self._orders.write(order.line())
        try:
            async with asyncio.timeout(_LOADS_WITHIN):
                connected = await expected
        except TimeoutError:
            raise NeverHappened(f"process {name} did not start within {_LOADS_WITHIN:g} s") from None
        participant = Participant(name, connected, track)
        listening = asyncio.create_task(participant.listen(heard))
        try:
            yield participant
        finally:
            participant.kill()
            await asyncio.wait([listening])

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody connects: the forkserver, or a participant that was just forked."""
        hello = Event.parse(await reader.readline())
        if hello.name == "forkserver":
            self._orders, self._watch = writer, asyncio.current_task()
            self.loaded.set()
            with contextlib.suppress(ConnectionResetError):
                await reader.read()  # until it ends: it says nothing more
            self.loaded.clear()
            for expected in self._expected.values():
                if not expected.done():  # cancelled
                    expected.set_exception(self.failure())
            return
        expected = self._expected.pop(hello.details["id"])
        if expected.done():  # whoever wanted it was cancelled meanwhile
            with contextlib.suppress(ProcessLookupError):  # its end may have been faster
                os.kill(hello.details["pid"], signal.SIGKILL)
            writer.close()
        else:
            expected.set_result((hello.details["pid"], reader, writer))

    def failure(self) -> NeverHappened:
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return NeverHappened(f"no processes could be prepared: {said[-1] if said else 'nothing was said'}")

    async def aclose(self) -> None:
        """Let go of a forkserver that was killed."""
        if self._orders is not None:
            self._orders.close()
        if self._watch is not None:
            await asyncio.wait([self._watch])


@contextlib.asynccontextmanager
async def open_forkserver(log: Path) -> AsyncIterator[Forkserver]:
    """A forkserver for the length of an `async with`; no participant outlives it.

    What participants print, warnings of the library for example, goes to the file `log`.

    :raises NeverHappened: it cannot load what it needs; the message is the last line of `log`.
    """
    forkserver = Forkserver(log)
    folder = socket_folder("asyncdlock-participants-")
    path = folder / "socket"
    try:
        async with await asyncio.start_unix_server(forkserver.accept, path, limit=_LONGEST_LINE):
            child = Child([sys.executable, "-m", _MODULE, str(path)], log=log, cwd=_ROOT)
            try:
                await _until_loaded(forkserver, child)
                yield forkserver
            finally:
                child.kill()
                await forkserver.aclose()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _until_loaded(forkserver: Forkserver, child: Child) -> None:
    try:
        async with asyncio.timeout(_LOADS_WITHIN):
            while not forkserver.loaded.is_set():
                if child.exit_code() is not None:
                    raise forkserver.failure()
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise forkserver.failure() from None
