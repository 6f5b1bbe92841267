"""What importing costs: no server's client until its scheme is used, and a missing one is named."""

import subprocess
import sys

import pytest


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_asyncdlock_imports_no_server_client() -> None:
    clients = ["redis", "hiredis", "aetcd", "grpc", "kazoo", "aiohttp", "asyncpg", "uvloop"]
    program = f"import sys, asyncdlock; print([name for name in {clients} if name in sys.modules])"
    assert run(program).strip() == "[]"


def test_memory_needs_no_server_client_either() -> None:
    program = "import sys, asyncdlock; asyncdlock.connect('memory://'); print('redis' in sys.modules)"
    assert run(program).strip() == "False"


@pytest.mark.parametrize(("scheme", "missing"), [("etcd", "aetcd"), ("etcds", "grpc")])
def test_a_missing_extra_is_named(scheme: str, missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None  # as if it were not installed
import asyncdlock
try:
    asyncdlock.connect("{scheme}://127.0.0.1")
except ImportError as error:
    print(error)
"""
    said = run(program)
    assert "pip install 'asyncdlock[etcd]'" in said
    assert len(said.strip().splitlines()) == 1
