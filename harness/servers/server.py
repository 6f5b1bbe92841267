"""The life of a server: a folder, ports, start, readiness by probing, faults, end."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

from harness.servers.child import Child
from harness.servers.errors import PortTaken, ServerFailed

HOST = "127.0.0.1"
READY_WITHIN = 60.0
"""Seconds until a silent server counts as failed: far beyond any start, for loaded machines."""

_STOP_WITHIN = 10.0
_PROBE_EVERY = 0.01
_PROBE_WITHIN = 1.0  # a starting server may accept a connection and never answer on it
_LOG_TAIL_LINES = 15
_PORT_TRIES = 5


class Server(ABC):
    """One server process on a fixed loopback port, with a folder for its data and its log.

    It belongs to no event loop: start it in one and restart it in another.
    """

    kind: str
    stop_signal = signal.SIGTERM
    host = HOST
    port: int

    def __init__(self, *, environment: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"asyncdlock-{self.kind}-"))
        self.data = self.folder / "data"
        self.log = self.folder / f"{self.kind}.log"
        self.environment = dict(environment or {})
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server.

        :raises ServerFailed: it is not running.
        """
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.exit_code() is None

    @property
    def nodes(self) -> Sequence["Server"]:
        """Itself: a single server can stand wherever a group can."""
        return [self]

    async def product(self) -> str:
        """Its name and version, as it says itself; empty when it does not.

        :raises OSError: it does not answer.
        """
        return ""

    def check(self) -> None:
        """Do nothing while it runs.

        :raises ServerFailed: it does not; the message carries the end of its log.
        """
        self._running()

    async def start(self, *, wipe: bool = False) -> None:
        """Start, again on the same port and data unless `wipe`, and return once it answers.

        :raises ServerFailed: it ended or stayed silent. Then, and when cancelled, nothing runs.
        """
        if self.running:
            raise ServerFailed(f"{self.kind} on {self.address} is already running.")
        if wipe:
            shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(exist_ok=True)
        child = Child(self._command(), log=self.log, cwd=self.data, environment=self.environment)
        self._child = child
        try:
            await self._until_ready(child)
        except BaseException:
            child.kill()
            raise

    async def stop(self) -> None:
        """Ask it to end (by its `stop_signal`), insist after ten seconds. Cancelled: it is killed."""
        child = self._running()
        try:
            child.signal(self.stop_signal)
            child.resume()
            deadline = time.monotonic() + _STOP_WITHIN
            while child.exit_code() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event
                await asyncio.sleep(_PROBE_EVERY)
        finally:
            child.kill()

    async def restart(self, *, wipe: bool = False) -> None:
        """Stop if running, then start on the same port and, unless `wipe`, the same data."""
        if self.running:
            await self.stop()
        await self.start(wipe=wipe)

    def kill(self) -> None:
        """SIGKILL: the power cut of processes. Returns when it is gone."""
        self._running().kill()

    def pause(self) -> None:
        """Freeze with SIGSTOP: connections stay open, nothing answers."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def close(self) -> None:
        """Kill what still runs and remove the folder. Never waits for the server's goodwill."""
        if self._child is not None:
            self._child.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    @abstractmethod
    def _command(self) -> list[str]:
        """Write what configuration the server needs and return its command line."""

    @abstractmethod
    async def _answers(self) -> bool:
        """One probe: does somebody serve requests on our port? May raise `OSError` for no."""

    def _running(self) -> Child:
        if self._child is None or self._child.exit_code() is not None:
            raise ServerFailed(self._obituary("is not running"))
        return self._child

    async def _until_ready(self, child: Child) -> None:
        deadline = time.monotonic() + READY_WITHIN
        log_start = self.log.stat().st_size if self.log.exists() else 0
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, TimeoutError):
                # Not wait_for(): on Python 3.11 it swallows a cancellation that meets the reply.
                async with asyncio.timeout(_PROBE_WITHIN):
                    if await self._answers() and child.listens_on(self.port):
                        return
            if (code := child.exit_code()) is not None:
                # Only what this start wrote: the log of an earlier one may name a taken port.
                said = self.log.read_bytes()[log_start:].decode(errors="replace").lower()
                error = PortTaken if "address already in use" in said else ServerFailed
                raise error(self._obituary(f"ended with code {code} before it was ready"))
            await asyncio.sleep(_PROBE_EVERY)
        raise ServerFailed(self._obituary(f"did not answer within {READY_WITHIN:.0f} s"))

    def _obituary(self, what: str) -> str:
        return f"{self.kind} on {self.address} {what}; its log ends:\n{self.log_tail() or '(empty)'}"


def credentials(user: str, password: str | None) -> str:
    """What stands before the address in a URL: `user:password@`, or nothing without a password."""
    return f"{quote(user, safe='')}:{quote(password, safe='')}@" if password else ""


class Startable(Protocol):
    async def start(self) -> None: ...
    def close(self) -> None: ...


S = TypeVar("S", bound=Startable)


@contextlib.asynccontextmanager
async def running(build: Callable[[], S]) -> AsyncIterator[S]:
    """Build and start; close at the end, whatever happened. Every factory of this package ends here.

    Every build chooses new ports: one whose port was taken meanwhile is thrown away.

    :raises ServerMissing: there is no program to start; the message says how to get one.
    :raises ServerFailed: it did not start.
    """
    server = await _started(build)
    try:
        yield server
    finally:
        server.close()


async def _started(build: Callable[[], S]) -> S:
    for tries_left in reversed(range(_PORT_TRIES)):
        server = build()
        try:
            await server.start()
        except BaseException as error:
            server.close()
            if not isinstance(error, PortTaken) or not tries_left:
                raise
        else:
            return server
    raise AssertionError("unreachable")
