"""A command under a lock, and signals that it has had already."""

import asyncio
import os
import signal
import threading

import pytest

from asyncdlock import _child


def test_a_signal_that_comes_when_the_command_has_just_ended_leaves_its_exit_code_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """systemd and `timeout` send SIGTERM to the command, too, which may end before ours is passed on."""
    waitpid, passed_on, ours = os.waitpid, threading.Event(), threading.current_thread()

    def late(pid: int, options: int) -> tuple[int, int]:
        """What asyncio's watcher asks, before Python 3.12 in a thread of its own."""
        if threading.current_thread() is not ours:
            passed_on.wait()
        return waitpid(pid, options)

    async def trial() -> int:
        with _child.Signals(asyncio.create_task(asyncio.sleep(0))) as signals:
            running = asyncio.create_task(_child.run(["sleep", "60"], {}, signals, grace=1.0))
            async with asyncio.timeout(60):
                while signals.child is None:
                    await asyncio.sleep(0)
            os.kill(signals.child.pid, signal.SIGTERM)
            os.waitid(os.P_PID, signals.child.pid, os.WEXITED | os.WNOWAIT)  # no step of the loop between
            signals._came(signal.SIGTERM)
            passed_on.set()
            return await running

    monkeypatch.setattr(os, "waitpid", late)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:  # as the program itself
        assert runner.run(trial()) == 128 + signal.SIGTERM
