"""Every Python block of the README and of docs/ runs, against real servers; none is left out."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import pytest

from harness import servers
from harness.servers.catalogue import INSTALLATIONS, LockServer
from harness.servers.s3_node import S3Node, s3
from tests.conftest import _started
from tests.docs.blocks import Block, blocks
from tests.docs.surroundings import surround

PYTHON = [block for block in blocks() if block.language == "python"]
URL = re.compile(r'"([a-z0-9-]+)://[^"\s]+"')
RUNNER = Path(__file__).with_name("run_block.py")
OTHERS: Mapping[str, Callable[[], AbstractAsyncContextManager[servers.PostgresNode | S3Node]]] = {
    "postgres": servers.postgres,
    "s3": s3,
}


@pytest.fixture
def server_of(installed: Callable[[str], LockServer]) -> Iterator[Callable[[str], str]]:
    """The URL of a real server for a scheme; of databases one for this test alone."""
    with ExitStack() as stack:

        def url(scheme: str) -> str:
            if scheme in OTHERS:
                return stack.enter_context(_started(OTHERS[scheme]())).url
            return installed(scheme).url

        yield url


def test_there_are_blocks() -> None:
    assert {"README.md", "docs/index.md", "docs/backends/etcd.md"} <= {block.page for block in PYTHON}


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_the_block_runs(block: Block, server_of: Callable[[str], str], tmp_path: Path) -> None:
    program = surround(block.page, block.text)
    urls = {found[0]: f'"{server_of(found[1])}"' for found in URL.finditer(program) if _ours(found[1])}
    path = tmp_path / "block.py"
    path.write_text(URL.sub(lambda found: urls.get(found[0], found[0]), program), "utf-8")
    if "def test_" in block.text:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", str(path)]
    else:
        command = [sys.executable, "-W", "error", str(RUNNER), str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (
        f"{block} does not run:\n{done.stdout}{done.stderr}\n"
        "If it lacks names that its reader has, put them into tests/docs/surroundings.py."
    )


def _ours(scheme: str) -> bool:
    return scheme in INSTALLATIONS or scheme in OTHERS
