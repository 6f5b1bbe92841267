"""Kills a server with kill -9 and starts it again, with the data it had on disk or with none."""

import contextlib
from collections.abc import AsyncIterator

from harness.faults.journal import FaultJournal
from harness.servers.server import Server


@contextlib.asynccontextmanager
async def crashed_server(
    journal: FaultJournal, server: Server, *, wipe: bool = False, who: str | None = None
) -> AsyncIterator[None]:
    """The server is dead for as long as the body runs, then starts again on its old port.

    What it had in memory only is gone; with `wipe` so is what it had on disk. The fault ends when it
    answers again. When the body raises or is cancelled, the server stays down.

    :raises ServerFailed: it was not running, or does not start again.
    """
    server.kill()
    with journal.fault("server crashed", who=who or f"{server.kind} {server.address}", data_lost=wipe):
        yield
        await server.start(wipe=wipe)
