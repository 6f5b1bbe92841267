"""Freezes a server: its connections stay open and nobody answers on them."""

import contextlib
from collections.abc import AsyncIterator

from harness.faults.journal import FaultJournal
from harness.servers.server import Server


@contextlib.asynccontextmanager
async def frozen_server(
    journal: FaultJournal, server: Server, *, who: str | None = None
) -> AsyncIterator[None]:
    """SIGSTOP for as long as the body runs.

    :raises ServerFailed: it is not running.
    """
    server.pause()
    with journal.fault("server frozen", who=who or f"{server.kind} {server.address}"):
        try:
            yield
        finally:
            if server.running:
                server.resume()
