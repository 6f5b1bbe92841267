"""A real worker process: started, told to go, watched by the lines that it prints."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import harness
from harness.experiments.lab.track import Event, Track
from harness.faults import FaultJournal
from harness.servers import guard

_ROOT = Path(harness.__file__).parents[1]
_MODULE = "harness.experiments.lab.gated_worker"
_ENDS_WITHIN = 30.0


class WorkerProcess:
    """`python -m harness worker` behind a start line; see `spawn_worker`."""

    def __init__(self, process: asyncio.subprocess.Process, track: Track, journal: FaultJournal) -> None:
        self._process = process
        self._journal = journal
        self.track = track

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs, negative for a signal."""
        return self._process.returncode

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def ended(self) -> int:
        """The exit code, once it has ended by itself.

        :raises TimeoutError: it does not.
        """
        async with asyncio.timeout(_ENDS_WITHIN):
            return await self._process.wait()

    def kill(self) -> None:
        """End it now, also when it is frozen."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    async def listen(self) -> None:
        """Turn its lines into events until it closes its output."""
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = asyncio.create_task(process.stderr.read())
        try:
            while line := await process.stdout.readline():
                told = json.loads(line)
                at = round(told.pop("at") * 1e9) - self._journal.origin
                self.track.add(Event(at, told.pop("event"), told))
        finally:
            # Warnings of the library go there too: by themselves they mean nothing.
            said = (await complaints).decode(errors="replace").split("\n")
            self.track.end(next((line for line in reversed(said) if line.strip()), ""))


@contextlib.asynccontextmanager
async def spawn_worker(track: Track, journal: FaultJournal, **flags: object) -> AsyncIterator[WorkerProcess]:
    """A worker process for the length of an `async with`, loaded and waiting for `go`.

    `flags` are those of `python -m harness worker`: `resource_url="…"` is `--resource-url …`, and a
    boolean is `on` or `off`. Times are counted from the journal's origin. It dies with this process,
    frozen or not.

    :raises NeverHappened: it did not start.
    """
    words: list[str] = []
    for name, value in flags.items():
        if value is not None:
            text = str(value) if not isinstance(value, bool) else "on" if value else "off"
            words.append(f"--{name.replace('_', '-')}={text}")
    # Without the guard a frozen worker would outlive an experiment that is killed.
    guarded = [sys.executable, "-I", "-S", guard.__file__, "pdeathsig", str(os.getpid())]
    process = await asyncio.create_subprocess_exec(
        *(guarded if sys.platform == "linux" else []),
        *(sys.executable, "-m", _MODULE, *words),
        cwd=_ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us: we end it ourselves
    )
    worker = WorkerProcess(process, track, journal)
    listening = asyncio.create_task(worker.listen())
    try:
        await track.until("ready")
        yield worker
    finally:
        worker.kill()
        await process.wait()
        await asyncio.wait([listening])
        if process.stdin is not None:
            process.stdin.close()
