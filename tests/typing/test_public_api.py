"""The public API under mypy --strict, and the public names themselves."""

import subprocess
import sys
from pathlib import Path

import asyncdlock

PROGRAM = Path(__file__).with_name("program.py")


def test_mypy_strict_accepts_a_program_that_uses_everything(tmp_path: Path) -> None:
    """With nothing but --strict: a user's configuration is not ours."""
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", PROGRAM],
        capture_output=True,
        text=True,
        cwd=PROGRAM.parents[2],
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_public_names_are_these() -> None:
    """Removing one breaks users; adding one is a promise."""
    assert sorted(asyncdlock.__all__) == [
        "AcquireTimeout",
        "Backend",
        "BackendError",
        "BackendUnavailable",
        "Capabilities",
        "Claim",
        "Grant",
        "Handle",
        "Inspectable",
        "InvalidKey",
        "Leader",
        "LeaseState",
        "LockClient",
        "LockError",
        "LockInfo",
        "LockLost",
        "QueueFull",
        "QuorumError",
        "ReentrantLock",
        "Semaphore",
        "SharedClaim",
        "StaleFence",
        "Term",
        "Tick",
        "Waiter",
        "connect",
        "register",
    ]
    for name in asyncdlock.__all__:
        assert getattr(asyncdlock, name).__module__.startswith("asyncdlock.")
