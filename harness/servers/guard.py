"""Becomes a server that does not outlive the process which asked for it.

Run as a script between fork and exec, because nothing but exec is safe in a freshly forked child
of a program with threads. Two ways to notice that the parent is gone:

- `pdeathsig`: Linux sends SIGKILL to the server when the *thread* that forked it ends, even
  by kill -9 (prctl(2), PR_SET_PDEATHSIG; it survives exec).
- `pipe`: everywhere else. A watcher, orphaned on purpose, holds the read end of a pipe whose
  write end only the parent has: end-of-file means that the parent is gone. A second pipe, held by
  the server, tells the watcher that the server ended first, so that it never kills a stranger
  which was given the same process id.

Usage: guard.py pdeathsig PARENT-PID COMMAND... | guard.py pipe FD COMMAND...
"""

import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int) -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        # The parent died before the signal was armed.
        sys.exit("the parent process is gone")


def _watch(parent_alive: int) -> None:
    server = os.getpid()
    server_alive, held_by_server = os.pipe()
    os.set_inheritable(held_by_server, True)
    if (middle := os.fork()) != 0:
        os.waitpid(middle, 0)
        os.close(parent_alive)
        os.close(server_alive)
        return
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    os.close(held_by_server)
    ended, _, _ = select.select([parent_alive, server_alive], [], [])
    if server_alive not in ended:
        os.kill(server, signal.SIGKILL)
    os._exit(0)


def main(how: str, argument: str, *command: str) -> None:
    if how == "pdeathsig":
        _die_with_parent(int(argument))
    else:
        _watch(int(argument))
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
