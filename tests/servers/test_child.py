"""A guarded child process, where it does not take a server to see what it does."""

import asyncio
import sys
from pathlib import Path

import psutil

from harness.servers.child import Child


async def test_a_process_that_has_ended_listens_on_nothing(tmp_path: Path) -> None:
    """Nobody but root may look at the sockets of one that was not reaped yet."""
    child = Child([sys.executable, "-S", "-c", ""], log=tmp_path / "log", cwd=tmp_path)
    async with asyncio.timeout(60):
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)
    assert not child.listens_on(80)
    assert child.exit_code() == 0
