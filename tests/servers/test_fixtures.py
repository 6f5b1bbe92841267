"""The promises of tests/conftest.py, tried on a small suite of their own."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_LOOPS = """
import asyncio

async def test_loop():
    loop = asyncio.get_running_loop()
    plain = isinstance(loop, asyncio.SelectorEventLoop)
    assert plain == loop.get_debug(), loop
"""

_SUITE = {
    "contract/test_loops.py": _LOOPS,
    "faults/test_loops.py": _LOOPS,
    "faults/test_leaks.py": """
import asyncio, pytest

async def test_leaks():
    test_leaks.task = asyncio.create_task(asyncio.sleep(1000))

async def test_ends_in_time():
    task = asyncio.create_task(asyncio.sleep(1000))
    task.cancel()

@pytest.fixture
async def worker():
    task = asyncio.create_task(asyncio.sleep(1000))
    yield
    task.cancel()

async def test_fixtures_may_clean_up(worker):
    pass
""",
    "faults/test_missing.py": """
from harness import servers

def test_in_fixture(redis_server):
    pass

async def test_in_body():
    async with servers.redis():
        pass
""",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "conftest.py").write_text((_ROOT / "tests" / "conftest.py").read_text())
    for name, text in _SUITE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def by_default(suite: Path) -> Mapping[str, str]:
    return outcomes(suite, ASYNCDLOCK_REQUIRE_SERVERS="0")


@pytest.fixture(scope="module")
def strictly(suite: Path) -> Mapping[str, str]:
    return outcomes(suite, "--loop", "both", ASYNCDLOCK_REQUIRE_SERVERS="1")


def outcomes(suite: Path, *words: str, **environment: str) -> dict[str, str]:
    """Run pytest on the suite, with no Redis to be found: the outcome of every test."""
    settings = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function", "filterwarnings=error"]
    options = [word for setting in settings for word in ("-o", setting)]
    environment |= {"PYTHONPATH": str(_ROOT), "ASYNCDLOCK_REDIS_SERVER": "/nowhere/redis-server"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "--import-mode=importlib", *options, *words],
        cwd=suite,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    found = dict(re.findall(r"^(\S+::\S+) (PASSED|FAILED|ERROR|SKIPPED)", run.stdout, re.MULTILINE))
    assert found, run.stdout + run.stderr
    return found


def test_contract_tests_run_on_uvloop_and_on_asyncio_in_debug_mode(by_default: Mapping[str, str]) -> None:
    assert by_default["contract/test_loops.py::test_loop[uvloop]"] == "PASSED"
    assert by_default["contract/test_loops.py::test_loop[asyncio-debug]"] == "PASSED"


def test_other_tests_run_once_unless_told_otherwise(
    by_default: Mapping[str, str], strictly: Mapping[str, str]
) -> None:
    assert by_default["faults/test_loops.py::test_loop"] == "PASSED"
    assert strictly["faults/test_loops.py::test_loop[uvloop]"] == "PASSED"
    assert strictly["faults/test_loops.py::test_loop[asyncio-debug]"] == "PASSED"


def test_a_task_left_behind_fails_the_test_that_left_it(by_default: Mapping[str, str]) -> None:
    assert by_default["faults/test_leaks.py::test_leaks"] == "ERROR"
    assert by_default["faults/test_leaks.py::test_ends_in_time"] == "PASSED"
    assert by_default["faults/test_leaks.py::test_fixtures_may_clean_up"] == "PASSED"


def test_a_missing_server_skips_but_fails_where_servers_are_required(
    by_default: Mapping[str, str], strictly: Mapping[str, str]
) -> None:
    assert by_default["faults/test_missing.py::test_in_fixture"] == "SKIPPED"
    assert by_default["faults/test_missing.py::test_in_body"] == "SKIPPED"
    assert strictly["faults/test_missing.py::test_in_fixture"] == "ERROR"
    assert strictly["faults/test_missing.py::test_in_body[uvloop]"] == "FAILED"
