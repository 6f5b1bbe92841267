"""A process and its offspring end together, whoever reaps them."""

import math
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from harness.servers import family

_NEVER_REAPS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
print("ready", flush=True)
input()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process that has a child and does not look whether it has ended."""
    command = [sys.executable, "-S", "-c", _NEVER_REAPS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        yield parent
        parent.kill()


@pytest.mark.timeout(60)
def test_a_zombie_is_not_waited_for(parent: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container without an init, PostgreSQL's sessions stay zombies when it is killed."""
    monkeypatch.setattr(family, "_GONE_WITHIN", math.inf)
    (child,) = family.family_of(parent.pid)
    family.kill_all([child])
    assert child.status() == psutil.STATUS_ZOMBIE


def test_who_has_ended_has_no_family(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.wait()
    assert family.family_of(parent.pid) == []
