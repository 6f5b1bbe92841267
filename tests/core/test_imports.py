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


def test_importing_the_harness_changes_no_environment_variable() -> None:
    program = "import os; before = dict(os.environ); import harness; print(dict(os.environ) == before)"
    assert run(program).strip() == "True"


@pytest.mark.parametrize("words", [[], ["experiment", "list"], ["compare", "a", "b"]])
def test_the_harness_without_its_extra_names_it(words: list[str]) -> None:
    program = f"""
import sys
for name in ("rich", "aiohttp"):
    sys.modules[name] = None  # as if they were not installed
from harness.cli.main import main
print(main({words!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "2"
    assert "pip install 'asyncdlock[harness]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_one_version_for_the_package_and_its_programs() -> None:
    program = "from importlib.metadata import version; print('asyncdlock', version('asyncdlock'))"
    told = subprocess.run(
        [sys.executable, "-m", "harness", "--version"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0
    assert told.stdout == run(program)
