"""The Dask scheduler of a fleet: one that is there, or one that is started here with its workers."""

import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from harness.config import UsageError


@contextlib.asynccontextmanager
async def client_of(fleet: str) -> AsyncIterator[Any]:
    """A client of the fleet's scheduler, which is started here for `local:N`.

    :raises UsageError: no scheduler answers.
    """
    from distributed import Client, LocalCluster

    async with contextlib.AsyncExitStack() as stack:
        kind, _, count = fleet.partition(":")
        target: Any = fleet
        if kind == "local":
            target = await stack.enter_async_context(
                LocalCluster(
                    n_workers=int(count),
                    threads_per_worker=1,
                    processes=True,
                    asynchronous=True,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,  # workers that are told to end complain
                    host="127.0.0.1",
                    local_directory=stack.enter_context(
                        tempfile.TemporaryDirectory(prefix="asyncdlock-fleet-")
                    ),
                )
            )
        try:
            client = await stack.enter_async_context(Client(target, asynchronous=True, timeout=15))
        except (OSError, TimeoutError) as error:
            raise UsageError(f"no Dask scheduler answers at {fleet}: {error}") from None
        yield client


async def workers_of(client: Any) -> list[str]:
    """:raises UsageError: the scheduler has none."""
    addresses = sorted((await client.scheduler.identity(n_workers=-1))["workers"])
    if not addresses:
        raise UsageError("the scheduler has no workers: start some with 'dask worker tcp://…'")
    return addresses
