"""Where the resource listens: a socket in the file system, loopback, or the open, and then it warns."""

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.resource.client import ResourceClient

COMMAND = [sys.executable, "-m", "harness", "resource", "--store", "memory", "--listen"]


@contextmanager
def listening(address: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """What it says, and the process."""
    with subprocess.Popen(
        [*COMMAND, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline(), process
        finally:
            process.terminate()


@pytest.fixture
def path() -> Iterator[Path]:
    """The name of a socket must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "resource.sock"


async def test_it_listens_on_a_socket_in_the_file_system(path: Path) -> None:
    with listening(f"unix:{path}") as (line, _):
        assert line.startswith(f"resource listening on unix:{path} (store memory")
        async with ResourceClient(f"unix:{path}") as client:
            assert (await client.put("key", b"v", fence=1)).status == 200
            assert (await client.get("key")).fence == 1


async def test_the_socket_of_a_killed_predecessor_is_taken_over_and_a_live_one_is_not(path: Path) -> None:
    with listening(f"unix:{path}") as (_, process):
        ended = await asyncio.to_thread(
            subprocess.run, [*COMMAND, f"unix:{path}"], capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, "address already in use" in ended.stderr) == (2, True)
        process.kill()
    assert path.is_socket()
    with listening(f"unix:{path}"):
        async with ResourceClient(f"unix:{path}") as client:
            assert (await client.healthz()).status == 200


def test_a_file_that_is_no_socket_is_left_alone(path: Path) -> None:
    path.write_text("mine")
    ended = subprocess.run([*COMMAND, f"unix:{path}"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert path.read_text() == "mine"


@pytest.mark.parametrize(("host", "warns"), [("0.0.0.0", True), ("127.0.0.1", False), ("localhost", False)])
def test_an_address_that_others_can_reach_gets_a_warning(host: str, warns: bool) -> None:
    with listening(f"{host}:0") as (line, process):
        assert line.startswith("resource listening on http://")
        process.terminate()
        assert process.stderr is not None
        assert ("open to whoever" in process.stderr.read()) is warns
    assert process.returncode == 0


def test_the_taken_port_of_an_open_address_is_one_sentence() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        ended = subprocess.run(
            [*COMMAND, f"0.0.0.0:{taken.getsockname()[1]}"], capture_output=True, text=True, timeout=60
        )
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
