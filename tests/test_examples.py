"""The examples and the README's first program run, and say what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> list[str]:
    return [] if request.param == "memory" else [request.getfixturevalue("redis_url")]


def test_quickstart(url: list[str]) -> None:
    assert re.fullmatch(r"holding account:42 with fence \d+\n", run(ROOT / "examples/quickstart.py", *url))


def test_a_stale_write_is_refused(url: list[str]) -> None:
    said = run(ROOT / "examples/fenced_write.py", *url)
    assert re.search(r"the quick worker writes with fence \d+: accepted", said)
    assert re.search(r"the slow worker wakes and writes with fence \d+: refused", said)
    assert "the account says: written by the quick worker" in said


def test_a_lost_lease_ends_the_body(url: list[str]) -> None:
    said = run(ROOT / "examples/loss_while_holding.py", *url)
    assert "stopped in time: lock 'report:7'" in said
    assert "never reached" not in said


def test_the_program_in_the_readme_is_the_quickstart_and_runs(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    program = tmp_path / "readme.py"
    program.write_text(found[1])
    assert "fence" in run(program)
    assert found[1].strip() in (ROOT / "examples/quickstart.py").read_text()
