"""The fixtures that come with the package, in a user's suite: pytest in a child process."""

import re
import subprocess
import sys
from pathlib import Path

HEADER = """
import asyncio, pytest, asyncdlock
pytestmark = pytest.mark.asyncio
"""


def suite(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (folder / "test_users.py").write_text(HEADER + tests)
    words = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *options, "test_users.py")
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_each_test_has_a_lock_server_of_its_own(tmp_path: Path) -> None:
    done = suite(
        tmp_path,
        """
@pytest.mark.parametrize("turn", [1, 2])
async def test_first_fence(locks, lock_url, turn):
    async with locks.hold("job") as handle, asyncdlock.connect(lock_url) as other:
        assert handle.fence == 1
        assert await other.try_acquire("job") is None
""",
    )
    assert done.returncode == 0, done.stdout


def test_a_lock_that_is_still_held_at_the_end_fails_its_test(tmp_path: Path) -> None:
    done = suite(
        tmp_path,
        """
async def test_forgetful(locks, lock_url):
    program = asyncdlock.connect(lock_url)
    program.kept = await program.acquire("report:7", ttl=60)
""",
    )
    assert done.returncode == 1
    assert "still held at the end of the test: 'report:7'" in done.stdout


def test_clean_up_in_the_background_is_waited_for(tmp_path: Path) -> None:
    done = suite(
        tmp_path,
        """
async def test_cancelled(locks):
    async def work():
        async with locks.hold("job"):
            await asyncio.sleep(60)
    task = asyncio.create_task(work())
    while (free := await locks.try_acquire("job")) is not None:
        await free.release()
        await asyncio.sleep(0)
    task.cancel()  # and nobody waits for it
""",
    )
    assert done.returncode == 0, done.stdout


async def test_a_lost_lock_ends_its_body_and_goes_to_the_next(tmp_path: Path) -> None:
    done = suite(
        tmp_path,
        """
async def test_lost(locks, lose_lock):
    entered = asyncio.Event()
    async def next_one():
        async with locks.hold("job") as handle:
            return handle.fence
    async def work():
        async with locks.hold("job") as handle:
            waiter = asyncio.create_task(next_one())
            await asyncio.sleep(0.01)
            await lose_lock(handle)
            assert await asyncio.wait_for(waiter, 10) > handle.fence
            pytest.fail("went on")
    with pytest.raises(asyncdlock.LockLost):
        await work()
""",
    )
    assert done.returncode == 0, done.stdout


def test_it_also_works_with_anyio(tmp_path: Path) -> None:
    """As where pytest-asyncio is not installed."""
    (tmp_path / "pytest_asyncio.py").write_text("raise ImportError")
    done = suite(
        tmp_path,
        """
pytestmark = pytest.mark.anyio
@pytest.fixture
def anyio_backend(): return "asyncio"
async def test_it(locks, lose_lock):
    handle = await locks.acquire("job")
    await lose_lock(handle)
    assert not handle.held
""",
        *("-p", "no:asyncio"),
    )
    assert done.returncode == 0, done.stdout


VIOLATED = """
import asyncdlock
from asyncdlock.backends.memory import MemoryBackend

class Everybody(MemoryBackend):
    async def acquire(self, claim, *, reserve=0):
        if claim.key in self._locks:
            self._locks[claim.key].owner = None
        return await super().acquire(claim, reserve=reserve)

class Forgetful(MemoryBackend):
    async def acquire(self, claim, *, reserve=0):
        self._locks.pop(claim.key, None)
        return await super().acquire(claim, reserve=reserve)

def broken() -> asyncdlock.LockClient:
    return asyncdlock.LockClient(Everybody("broken"))

def forgetful() -> asyncdlock.LockClient:
    return asyncdlock.LockClient(Forgetful("forgetful"))

def sound() -> asyncdlock.LockClient:
    return asyncdlock.connect("memory://sound")
"""


def test_lock_harness_passes_a_sound_lock_and_fails_one_that_lets_everybody_in(tmp_path: Path) -> None:
    (tmp_path / "users_locks.py").write_text(VIOLATED)
    done = suite(
        tmp_path,
        """
from users_locks import broken, forgetful, sound
SETTINGS = dict(contenders=20, rate=100, duration=2, work=0.05)
async def test_sound(lock_harness):
    result = await lock_harness(sound, contenders=20, rate=50, duration=2)
    assert result.figures.arrivals.acquired > 0
async def test_broken(lock_harness):
    await lock_harness(broken, **SETTINGS)
async def test_forgetful(lock_harness):
    await lock_harness(forgetful, **SETTINGS)
""",
    )
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert re.search(r"the verdict is violated\n(exclusion|holders): ", done.stdout)
    assert "its server goes on losing data" in done.stdout


def test_without_the_extra_lock_harness_names_it(tmp_path: Path) -> None:
    done = suite(
        tmp_path,
        """
import sys
async def test_it(lock_harness, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)  # as if it were not installed
    await lock_harness("memory://")
""",
    )
    assert done.returncode == 1
    assert "pip install 'asyncdlock[harness]'" in done.stdout


def test_the_plugin_imports_neither_servers_clients_nor_the_harness() -> None:
    heavy = ["redis", "aetcd", "kazoo", "aiohttp", "uvloop", "harness.embedding", "rich"]
    program = (
        "import sys, asyncdlock.pytest_plugin, harness.pytest_plugin;"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
