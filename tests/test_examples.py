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


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples").glob("*_app.py")), ids=lambda path: str(path.stem)
)
def test_an_integration_fits_a_screen(example: Path) -> None:
    assert len(example.read_text().splitlines()) < 40


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


def test_transfers_take_two_locks(url: list[str]) -> None:
    said = run(ROOT / "examples/transfer.py", *url)
    assert "with 2 fences" in said
    assert "{'account:1': 80, 'account:2': 120}" in said


def test_leaders_follow_each_other(url: list[str]) -> None:
    said = run(ROOT / "examples/leader.py", *url).splitlines()
    assert re.match(r"(one|two) leads in term \d+", said[0])
    assert [line.split()[1] for line in said] == ["leads", "resigns", "leads", "resigns"]


def test_each_tick_runs_once(url: list[str]) -> None:
    said = run(ROOT / "examples/once.py", *url)
    assert len(re.findall(r"report for [\d:.]+, \d+ missed before it", said)) >= 2
    assert said.endswith("each tick once\n")


def test_a_function_runs_under_the_lock_of_its_argument(url: list[str]) -> None:
    said = run(ROOT / "examples/locked.py", *url)
    assert len(re.findall(r"from account:4[23] with fence \d+", said)) == 3


def test_threads_count(url: list[str]) -> None:
    assert run(ROOT / "examples/threads.py", *url) == "4 threads counted to 40\n"


def test_a_blocked_loop_keeps_its_lock(redis_url: str) -> None:
    said = run(ROOT / "examples/blocked_loop.py", redis_url)
    assert said == "still holding report after three leases\n"


def test_the_program_in_the_readme_is_the_quickstart_and_runs(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    program = tmp_path / "readme.py"
    program.write_text(found[1])
    assert "fence" in run(program)
    assert found[1].strip() in (ROOT / "examples/quickstart.py").read_text()
