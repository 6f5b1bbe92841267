"""What a Dask worker does for a fleet: runs one share, says when it is ready, hands its files over.

Orders come as functions that Dask calls in the worker's own event loop. The load goes from the worker's
generators to the lock server and the resource; Dask sees nothing of it.
"""

import asyncio
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from harness.config import RunConfig
from harness.load.run import run_load

_FILES = ("share.json", "summary.json", "history.jsonl.gz", "resource.jsonl.gz")


class RunningShare:
    """A share between its start and its end, so that orders find it."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.start: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def agree(self) -> float:
        """Say that everything is ready, and wait to be told when to begin."""
        self.ready.set()
        return await self.start


_running: dict[str, RunningShare] = {}


async def run_share(config: RunConfig, run: str) -> str:
    """Run the share of `config` in a temporary folder, and return that folder. `run` is the fleet's own name.

    :raises UsageError: the servers cannot be reached from here.
    """
    from distributed import get_worker

    share = _running[run] = RunningShare()
    try:
        out = tempfile.mkdtemp(prefix="asyncdlock-share-", dir=get_worker().local_directory)
        finished = await run_load(replace(config, out=out), agree=share.agree, interrupted=share.interrupted)
        return str(finished.folder)
    finally:
        del _running[run]


def is_ready(run: str) -> bool:
    """Whether the share waits for its start."""
    return run in _running and _running[run].ready.is_set()


def begin(run: str, start_at: float) -> None:
    """The first arrival is due at `start_at` on this machine's clock."""
    if run in _running and not _running[run].start.done():
        _running[run].start.set_result(start_at)


def stop(run: str) -> None:
    """End the share early."""
    if run in _running:
        begin(run, time.time())
        _running[run].interrupted.set()


def clock() -> float:
    """This machine's time, in seconds since the epoch."""
    return time.time()


def sizes(folder: str) -> dict[str, int]:
    """The files that `merge` needs, and how long they are."""
    found = {name: Path(folder, name) for name in _FILES}
    return {name: path.stat().st_size for name, path in found.items() if path.is_file()}


def piece(folder: str, name: str, offset: int, size: int) -> bytes:
    """A part of a file."""
    with Path(folder, name).open("rb") as file:
        file.seek(offset)
        return file.read(size)


def remove(folder: str) -> None:
    """Nobody needs it any more."""
    shutil.rmtree(Path(folder).parent, ignore_errors=True)
