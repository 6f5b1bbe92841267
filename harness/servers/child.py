"""One guarded child process: started, signalled, reaped, and never left behind."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import psutil

Guard = Literal["pdeathsig", "pipe"]

_GUARD_SCRIPT = str(Path(__file__).with_name("guard.py"))
_DEFAULT_GUARD: Guard = "pdeathsig" if sys.platform == "linux" else "pipe"


@functools.cache
def _spawner(_pid: int) -> ThreadPoolExecutor:
    """The one thread that forks, kept until this process ends.

    The kernel's parent-death signal fires when the forking *thread* ends, so a server must not be
    forked from a thread that may end sooner, such as a worker of a loop's default executor.
    Keyed by process id: a forked child of ours has no such thread.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="harness-spawner")


class Child:
    """A process in a session of its own, so that Ctrl-C reaches us and not it.

    Creating one blocks for the millisecond that a fork takes: nothing is awaited, so no
    cancellation can lose a child that is half started. Output is appended to `log`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        guard: Guard = _DEFAULT_GUARD,
    ) -> None:
        self._alive_pipe: int | None = None
        read_end: int | None = None
        if guard == "pipe":
            read_end, self._alive_pipe = os.pipe()
        argument = os.getpid() if read_end is None else read_end
        interpreter = [sys.executable, "-I", "-S", _GUARD_SCRIPT, guard, str(argument)]
        try:
            with log.open("ab") as output:
                self._process = (
                    _spawner(os.getpid())
                    .submit(
                        subprocess.Popen,
                        [*interpreter, *command],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        cwd=cwd,
                        env={**os.environ, **(environment or {})},
                        start_new_session=True,
                        pass_fds=() if read_end is None else (read_end,),
                    )
                    .result()
                )
        except BaseException:
            self._close_pipe()
            raise
        finally:
            if read_end is not None:
                os.close(read_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """How the process ended (negative: by that signal), or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._close_pipe()
        return code

    def listens_on(self, port: int) -> bool:
        """Is it this process, and not a stranger who was faster, that serves the port?"""
        try:
            sockets = psutil.Process(self.pid).net_connections(kind="tcp")
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # one that is ending is shown to root alone
            return False
        return any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets)

    def signal(self, number: int) -> None:
        """Send a signal to the process and its own children; nothing happens when it has ended."""
        if self.exit_code() is None:
            os.killpg(self._process.pid, number)

    def pause(self) -> None:
        """Freeze with SIGSTOP and return once the kernel has stopped every thread of the process."""
        self.signal(signal.SIGSTOP)
        if not hasattr(os, "waitid"):
            return
        deadline = time.monotonic() + 1.0
        flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        while self.exit_code() is None and time.monotonic() < deadline:
            if os.waitid(os.P_PID, self.pid, flags) is not None:
                return
            time.sleep(0.0005)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, also when frozen, and reap."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._alive_pipe is not None:
            os.close(self._alive_pipe)
            self._alive_pipe = None
