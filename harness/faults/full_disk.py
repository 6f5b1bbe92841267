"""Fills a server's disk: every write to a file fails, until there is room again.

Linux sets the limit, for the size of each file of a process: a write beyond it fails with EFBIG, where a full
disk says ENOSPC. The signal that comes with it is ignored by all servers that this package starts, because
Python ignores it and they inherit that. Sockets go on, and so does what a server can read.
"""

import contextlib
from collections.abc import AsyncIterator

import psutil

from harness.faults.accidents.accident import AccidentFailed
from harness.faults.journal import FaultJournal
from harness.servers.server import Server


@contextlib.asynccontextmanager
async def full_disk(journal: FaultJournal, server: Server, *, who: str | None = None) -> AsyncIterator[None]:
    """There is no room for as long as the body runs.

    A server that ended meanwhile, as most do rather than promise what they cannot keep, is started again.
    When the body raises or is cancelled, such a server stays down.

    :raises AccidentFailed: this machine does not let the limit be set.
    :raises ServerFailed: the server was not running, or does not start again.
    """
    try:
        _limit(server, full=True)
    except (AttributeError, psutil.Error) as error:  # not on Linux; a server of another user
        raise AccidentFailed(f"the disk of {server.kind} cannot be filled here: {error!r}") from error
    with journal.fault("disk full", who=who or f"{server.kind} {server.address}"):
        try:
            yield
        finally:
            if server.running:
                _limit(server, full=False)
        if not server.running:
            await server.start()


def _limit(server: Server, *, full: bool) -> None:
    """Of the server and all that it forked."""
    process = psutil.Process(server.pid)
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            _, most = one.rlimit(psutil.RLIMIT_FSIZE)
            one.rlimit(psutil.RLIMIT_FSIZE, (0 if full else most, most))
