"""The Dask scheduler of a fleet: one that is there, or one that is started here with its workers."""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import harness
from harness.config import UsageError
from harness.servers.child import Child
from harness.servers.errors import ServerFailed
from harness.servers.family import family_of, kill_all

_HOST = "127.0.0.1"
_READY_WITHIN = 60.0
_LOOK_EVERY = 0.05


@contextlib.asynccontextmanager
async def client_of(fleet: str) -> AsyncIterator[Any]:
    """A client of the fleet's scheduler, which is started here for `local:N`.

    :raises UsageError: no scheduler answers.
    :raises ServerFailed: a worker could not be started here.
    """
    from distributed import Client

    async with contextlib.AsyncExitStack() as stack:
        kind, _, count = fleet.partition(":")
        address = fleet
        if kind == "local":
            address = await stack.enter_async_context(_started_here(int(count)))
        try:
            client = await stack.enter_async_context(Client(address, asynchronous=True, timeout=15))
        except (OSError, TimeoutError) as error:
            raise UsageError(f"no Dask scheduler answers at {fleet}: {error}") from None
        yield client


async def workers_of(client: Any) -> list[str]:
    """:raises UsageError: the scheduler has none."""
    addresses = sorted((await client.scheduler.identity(n_workers=-1))["workers"])
    if not addresses:
        raise UsageError("the scheduler has no workers: start some with 'dask worker tcp://…'")
    return addresses


@contextlib.asynccontextmanager
async def _started_here(count: int) -> AsyncIterator[str]:
    """A scheduler in this process with `count` workers; its address.

    The workers have sessions of their own, which Dask's cluster would not give them: Ctrl-C reaches this
    process alone, which tells the shares to stop. A worker that it reached would end, and its share with it.
    """
    import dask
    from distributed import Scheduler

    with (
        tempfile.TemporaryDirectory(prefix="asyncdlock-fleet-") as name,
        dask.config.set({"temporary-directory": name}),
        _silence(),
    ):
        folder = Path(name)
        async with Scheduler(
            host=_HOST, port=0, dashboard=False, dashboard_address=f"{_HOST}:0"
        ) as scheduler:
            workers: list[Child] = []
            try:
                workers.extend(_worker(scheduler.address, folder, number) for number in range(1, count + 1))
                await _until_all_work(scheduler, workers, folder)
                yield scheduler.address
            finally:
                alive = [worker for worker in workers if worker.exit_code() is None]
                family = [started for worker in alive for started in family_of(worker.pid)]
                for worker in workers:
                    worker.kill()
                kill_all(family)  # their generators have sessions of their own, too


def _worker(scheduler: str, folder: Path, number: int) -> Child:
    words = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler]
    words += ["--no-nanny", "--nthreads", "1", "--memory-limit", "0", "--host", _HOST]
    words += ["--no-dashboard", "--dashboard-address", f"{_HOST}:0", "--local-directory", str(folder)]
    paths = [str(Path(harness.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return Child(
        words, log=_log(folder, number), cwd=Path.cwd(), environment={"PYTHONPATH": os.pathsep.join(paths)}
    )


def _log(folder: Path, number: int) -> Path:
    return folder / f"worker-{number}.log"


async def _until_all_work(scheduler: Any, workers: Sequence[Child], folder: Path) -> None:
    """:raises ServerFailed: one has ended, or does not come."""
    deadline = time.monotonic() + _READY_WITHIN
    while len(scheduler.workers) < len(workers):
        for number, worker in enumerate(workers, 1):
            if (code := worker.exit_code()) is not None:
                said = _log(folder, number).read_text(errors="replace").split("\n")
                raise ServerFailed("\n".join([f"a Dask worker ended with code {code}:", *said[-15:]]))
        if time.monotonic() > deadline:
            raise ServerFailed(
                f"{len(workers) - len(scheduler.workers)} of {len(workers)} Dask workers did not come within "
                f"{_READY_WITHIN:g} s"
            )
        await asyncio.sleep(_LOOK_EVERY)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Let Dask say nothing here: it complains of workers that end."""
    handlers = logging.getLogger("distributed").handlers
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for handler, level in zip(handlers, levels, strict=False):
            handler.setLevel(level)
