"""No server outlives the process that started it, however that process ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness import servers
from harness.servers.child import Child, Guard

_PATIENCE = 60.0

_PARENT = """
import sys, time
from pathlib import Path
from harness.servers.child import Child
folder = Path(sys.argv[1])
child = Child(["/bin/sleep", "1000"], log=folder / "log", cwd=folder, guard=sys.argv[2])
print(child.pid, flush=True)
time.sleep(1000)
"""

_UP = "import sys; from harness.cli.main import main; sys.exit(main(['servers', 'up', *sys.argv[1:]]))"


def is_running(pid: int) -> bool:
    """Not so when it is a zombie, which an orphan stays until somebody adopts it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program in a process group of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def children_of(process: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(process.pid).children()]


@pytest.mark.parametrize("guard", ["pdeathsig", "pipe"])
def test_a_child_dies_with_a_parent_that_is_killed(
    guard: Guard, tmp_path: Path, python: Callable[..., subprocess.Popen[str]]
) -> None:
    if guard == "pdeathsig" and sys.platform != "linux":
        pytest.skip("only Linux has a parent-death signal")
    parent = python(_PARENT, str(tmp_path), guard)
    child = int(line_from(parent))
    wait_until(lambda: "sleep" in psutil.Process(child).name())  # past the guard
    parent.kill()
    wait_until(lambda: not is_running(child))


def test_a_redis_dies_with_a_parent_that_is_killed(python: Callable[..., subprocess.Popen[str]]) -> None:
    parent = python(_UP, "redis")
    assert line_from(parent).startswith("redis://")
    (server,) = children_of(parent)
    parent.kill()
    wait_until(lambda: not is_running(server))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_stop_what_servers_up_started(
    how: signal.Signals, python: Callable[..., subprocess.Popen[str]]
) -> None:
    """A terminal sends Ctrl-C to the whole process group."""
    parent = python(_UP, "redis", "redlock")
    assert line_from(parent).startswith("redis://")
    assert line_from(parent).startswith("redlock://")
    children = children_of(parent)
    assert len(children) == 6
    assert not {os.getpgid(child) for child in children} & {parent.pid}, "they hear the terminal, too"
    os.killpg(parent.pid, how)
    _, errors = parent.communicate(timeout=_PATIENCE)
    assert (parent.returncode, errors) == (0, "")
    assert not any(map(is_running, children))


def test_servers_up_ends_and_says_so_when_a_server_dies(
    python: Callable[..., subprocess.Popen[str]],
) -> None:
    parent = python(_UP, "redis")
    line_from(parent)
    (server,) = children_of(parent)
    os.kill(server, signal.SIGKILL)
    _, errors = parent.communicate(timeout=_PATIENCE)
    assert parent.returncode == 3
    assert "is not running; its log ends" in errors


def test_a_server_outlives_the_thread_and_the_loop_that_started_it() -> None:
    """The parent-death signal follows the thread that forked, which is therefore never the caller's."""
    node = servers.RedisNode()
    thread = threading.Thread(target=lambda: asyncio.run(node.start()))
    thread.start()
    thread.join()
    try:
        time.sleep(0.1)  # the signal, if any, was sent when the thread ended
        assert asyncio.run(node.command("PING"))
    finally:
        node.close()


def test_a_watcher_ends_with_its_server(tmp_path: Path) -> None:
    """Otherwise it might later kill a stranger that was given the same process id."""
    unique = f"1000.{os.getpid()}"

    def watchers() -> list[int]:
        commands = (
            (process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
        )
        return [pid for pid, command in commands if unique in command and pid != child.pid]

    child = Child(["/bin/sleep", unique], log=tmp_path / "log", cwd=tmp_path, guard="pipe")
    try:
        wait_until(lambda: "sleep" in psutil.Process(child.pid).name())
        assert len(watchers()) == 1
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: not watchers())
    finally:
        child.kill()
