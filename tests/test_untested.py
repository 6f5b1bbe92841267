"""The end of a run says what was not tested, and which command would change that."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import servers
from harness.servers import postgres_node, tls, zookeeper_ensemble
from tests.untested import untested

ROOT = Path(__file__).parents[1]


def test_nothing_is_said_when_nothing_was_skipped() -> None:
    assert untested([]) == []


def test_what_no_package_would_change_asks_for_none() -> None:
    assert untested(["Skipped: redis promises no order"] * 3) == [
        "     3  not promised by that backend, or not to be had here"
    ]


@pytest.mark.parametrize(
    ("reason", "packages"),
    [
        ("no Chromium on PATH: install it (Debian: chromium)", "chromium"),
        ("spin and gcc not installed (Debian: spin, gcc)", "gcc spin"),
        (
            "No etcd on PATH (Debian: apt-get install etcd-server etcd-client), or …",
            "etcd-client etcd-server",
        ),
        ("apt-get install prometheus", "prometheus"),
        ("this PostgreSQL was built without SSL: Debian's package postgresql has it", "postgresql"),
    ],
)
def test_the_packages_of_a_reason_are_understood(reason: str, packages: str) -> None:
    assert untested([reason])[-1] == (
        f"To test these as well: apt-get install -y --no-install-recommends {packages}"
    )


def test_one_command_names_everything_once() -> None:
    reasons = [
        "No a (Debian: apt-get install zookeeper).",
        "No b (Debian: chromium)",
        "No b (Debian: chromium)",
    ]
    assert untested([*reasons, "pip install compose-spec", "promises no order"]) == [
        "     2  No b (Debian: chromium)",
        "     1  No a (Debian: apt-get install zookeeper).",
        "     1  pip install compose-spec",
        "     1  not promised by that backend, or not to be had here",
        "To test these as well: pip install -e '.[dev]' && "
        "apt-get install -y --no-install-recommends chromium zookeeper",
    ]


@pytest.mark.parametrize(
    ("look", "package"),
    [
        (lambda folder: zookeeper_ensemble.find_java(), "zookeeper"),
        (tls.make_certificates, "openssl"),
        (postgres_node.other_user, "util-linux"),
    ],
)
def test_the_reason_of_a_program_that_is_missing_is_understood(
    look: Callable[[Path], object], package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(servers.ServerMissing) as missing:
        look(tmp_path)
    assert untested([str(missing.value)])[-1].endswith(f" {package}")


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_run_ends_with_it(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(
        "import pytest\n"
        "def test_runs(): pass\n"
        "def test_program(): pytest.skip('no Chromium (Debian: chromium)')\n"
        "@pytest.mark.skipif(True, reason='apt-get install spin')\n"
        "def test_mark(): pass\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.untested", "-p", "no:cacheprovider", workers, "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "= not tested =" in run.stdout
    assert "     1  apt-get install spin\n     1  no Chromium (Debian: chromium)\n" in run.stdout
    assert "To test these as well: apt-get install -y --no-install-recommends chromium spin\n" in run.stdout
