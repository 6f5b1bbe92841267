"""The command line, as real processes on real servers."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

import asyncdlock
from asyncdlock import cli
from harness.servers.catalogue import LockServer
from tests.contract.fixtures import until

PATIENCE = 120.0
PROGRAM = (sys.executable, "-m", "asyncdlock")


class Ended:
    """What a command said, and its exit code."""

    def __init__(self, code: int | None, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out.decode(), err.decode()

    @property
    def complaint(self) -> str:
        """Its one sentence on standard error."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("asyncdlock: ")
        return lines[0]


class Running:
    """A command while it runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)).decode().rstrip("\n")

    async def ended(self) -> Ended:
        out, err = await asyncio.wait_for(self.process.communicate(), PATIENCE)
        return Ended(self.process.returncode, out, err)


@contextlib.asynccontextmanager
async def started(*words: str, **environment: str) -> AsyncIterator[Running]:
    inherited = {name: value for name, value in os.environ.items() if name != "ASYNCDLOCK_URL"}
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *words,
        env=inherited | environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    running = Running(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await running.ended()


async def run(*words: str, **environment: str) -> Ended:
    async with started(*words, **environment) as running:
        return await running.ended()


@pytest.fixture
def key() -> str:
    return f"k-{uuid.uuid4().hex}"


@pytest.fixture(params=["redis-queue", "redis", "redlock", "etcd", "zookeeper", "postgres"])
def url(request: pytest.FixtureRequest, installed: Callable[[str], LockServer]) -> str:
    return installed(request.param).url


@pytest.fixture
def queue_url(installed: Callable[[str], LockServer]) -> str:
    return installed("redis-queue").url


def printing(*lines: str) -> tuple[str, ...]:
    return "--", sys.executable, "-u", "-c", "\n".join(lines)


SLEEPS = printing("import time", "print('running')", "time.sleep(600)")


async def test_the_command_sees_key_and_fence_and_its_exit_code_is_ours(url: str, key: str) -> None:
    shows = printing(
        "import os, sys",
        "print(os.environ['ASYNCDLOCK_KEY'], os.environ['ASYNCDLOCK_FENCE'])",
        "sys.exit(7)",
    )
    first = await run("hold", key, *shows, ASYNCDLOCK_URL=url)
    second = await run("--url", url, "hold", key, "--timeout", "60s", "--ttl", "5s", *shows)
    assert (first.code, second.code, first.err, second.err) == (7, 7, "", "")
    fences = [int(done.out.split()[1]) for done in (first, second)]
    assert [done.out.split()[0] for done in (first, second)] == [key, key]
    assert fences[0] < fences[1]


async def test_two_of_them_take_turns(url: str, key: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    section = printing(
        "import os, time",
        "fence = os.environ['ASYNCDLOCK_FENCE']",
        f"note = lambda what: open({str(diary)!r}, 'a').write(f'{{what}} {{fence}}\\n')",
        "note('in')",
        "time.sleep(0.5)",
        "note('out')",
    )
    done = await asyncio.gather(*(run("hold", key, "--url", url, *section) for _ in range(3)))
    assert [one.code for one in done] == [0, 0, 0], [one.err for one in done]
    events = [line.split() for line in diary.read_text().splitlines()]
    assert [what for what, _ in events] == ["in", "out"] * 3
    assert [fence for _, fence in events[::2]] == [fence for _, fence in events[1::2]]
    assert len({fence for _, fence in events}) == 3


async def test_kill_9_of_the_first_frees_the_second_after_its_ttl(url: str, key: str) -> None:
    """And the first one's command is gone by then, which nobody else could have stopped."""
    async with started("hold", key, "--ttl", "3s", "--url", url, *SLEEPS) as first:
        assert await first.line() == "running"
        [command] = psutil.Process(first.process.pid).children()
        async with started("hold", key, "--ttl", "3s", "--url", url, *printing("print('mine')")) as second:
            await asyncio.sleep(1.0)
            assert second.process.returncode is None
            first.process.kill()
            done = await second.ended()
        assert (done.code, done.out) == (0, "mine\n"), done.err
        assert not command.is_running() or command.status() == psutil.STATUS_ZOMBIE


async def test_a_lost_lock_stops_the_command(url: str, key: str) -> None:
    async with asyncdlock.connect(url) as locks:
        async with started(
            "hold", key, "--ttl", "2s", "--label", "night job", "--url", url, *SLEEPS
        ) as holder:
            assert await holder.line() == "running"
            [command] = psutil.Process(holder.process.pid).children()

            async def named() -> bool:
                return (await locks.inspect(key)).label == "night job"

            await until(named)
            assert await locks.force_release(key)
            done = await holder.ended()
        assert done.code == cli.LOST
        assert "was lost" in done.complaint
        assert key in done.complaint
        assert not command.is_running()


async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(queue_url: str, key: str) -> None:
    stubborn = printing(
        "import signal, time",
        "signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))",
        "print('running', flush=True)",
        "while True: time.sleep(0.1)",
    )
    async with asyncdlock.connect(queue_url) as locks:
        words = ("hold", key, "--ttl", "1s", "--grace", "500ms", "--url", queue_url)
        async with started(*words, *stubborn) as holder:
            assert await holder.line() == "running"
            [command] = psutil.Process(holder.process.pid).children()
            await locks.force_release(key)
            assert await holder.line() == "no"
            assert (await holder.ended()).code == cli.LOST
            assert not command.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the command itself can be found")
async def test_a_lost_lock_stops_all_that_the_command_has_started(queue_url: str, key: str) -> None:
    """A shell ends by SIGTERM at once, and leaves behind what it was waiting for, or had put aside."""
    stubborn = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done'"
    script = f"{stubborn} & sleep 600 & echo $!; sleep 600; :"
    async with asyncdlock.connect(queue_url) as locks:
        words = ("hold", key, "--ttl", "1s", "--grace", "500ms", "--url", queue_url, "--", "sh", "-c", script)
        async with started(*words) as holder:
            for _ in range(2):
                assert (await holder.line()).isdecimal()
            family = psutil.Process(holder.process.pid).children(recursive=True)
            assert len(family) >= 4
            await locks.force_release(key)
            # Whoever lives on would hold the pipes open.
            assert (await holder.ended()).code == cli.LOST
            assert not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


async def test_orphans_of_the_command_leave_no_zombies_behind(queue_url: str, key: str) -> None:
    script = "for i in 1 2 3 4 5; do (true &) ; done; echo started; exec sleep 600"
    async with started("hold", key, "--url", queue_url, "--", "sh", "-c", script) as holder:
        assert await holder.line() == "started"
        us = psutil.Process(holder.process.pid)

        async def reaped() -> bool:
            return [one.name() for one in us.children(recursive=True)] == ["sleep"]

        await until(reaped)
        assert us.children()[0].status() != psutil.STATUS_ZOMBIE
        holder.process.terminate()
        assert (await holder.ended()).code == 128 + signal.SIGTERM


BURIES_EARLY_ORPHANS = """
import asyncio, psutil
from asyncdlock import cli

create = asyncio.create_subprocess_exec

def dead():
    return [one for one in psutil.Process().children() if one.status() == psutil.STATUS_ZOMBIE]

async def create_slowly(*words, **options):
    child = await create(*words, **options)
    while not dead():
        await asyncio.sleep(0.01)
    asyncio.create_task(watch(child))
    return child

async def watch(child):
    while dead():
        await asyncio.sleep(0.01)
    print("buried", flush=True)
    child.kill()

asyncio.create_subprocess_exec = create_slowly
cli.main(["--url", "memory://", "hold", "k", "--", "sh", "-c", "(true &); exec sleep 600"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans come to us on Linux alone")
def test_orphans_that_ended_before_we_listened_leave_no_zombies_behind() -> None:
    command = [sys.executable, "-c", BURIES_EARLY_ORPHANS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout == "buried\n", done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
async def test_signals_go_to_the_command(queue_url: str, key: str, number: signal.Signals) -> None:
    listens = printing(
        "import signal, sys, time",
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))",
        "print('running', flush=True)",
        "while True: time.sleep(0.1)",
    )
    async with started("hold", key, "--url", queue_url, *listens) as holder:
        assert await holder.line() == "running"
        holder.process.send_signal(number)
        assert (await holder.ended()).code == 42
    async with asyncdlock.connect(queue_url) as locks:
        assert not (await locks.inspect(key)).held


async def test_a_command_that_a_signal_ends(queue_url: str, key: str) -> None:
    kills_itself = printing("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)")
    assert (await run("hold", key, "--url", queue_url, *kills_itself)).code == 128 + signal.SIGKILL


async def test_a_wait_that_ends(queue_url: str, key: str) -> None:
    """By its time-out or by a signal: nothing is run, nothing is left behind."""
    async with asyncdlock.connect(queue_url) as locks, locks.hold(key, ttl=60.0):
        late = await run("hold", key, "--timeout", "200ms", "--url", queue_url, *SLEEPS)
        assert (late.code, late.out) == (cli.TIMED_OUT, "")
        assert "not granted within 0.2 s" in late.complaint
        async with started("hold", key, "--url", queue_url, *SLEEPS) as waiting:

            async def waits() -> bool:
                return len((await locks.inspect(key)).waiters) == 1

            await until(waits)
            waiting.process.send_signal(signal.SIGTERM)
            done = await waiting.ended()
        assert (done.code, done.out, done.err) == (128 + signal.SIGTERM, "", "")
        assert (await locks.inspect(key)).waiters == ()


async def test_ls_inspect_and_release(url: str, key: str) -> None:
    prefix = f"{key}-"
    words = ("--url", url, "--prefix", prefix)
    async with asyncdlock.connect(url, prefix=prefix, label="me") as locks:
        assert json.loads((await run("ls", "--json", *words)).out) == []
        handle = await locks.acquire("one", ttl=60.0)
        other = await locks.acquire("two", ttl=60.0)

        async def named() -> bool:
            return (await locks.inspect("two")).label == "me"

        await until(named)
        listed = json.loads((await run("ls", "--json", *words)).out)
        assert [(lock["key"], lock["owner"], lock["label"]) for lock in listed] == [
            ("one", handle.owner, "me"),
            ("two", other.owner, "me"),
        ]
        table = (await run("ls", *words)).out.splitlines()
        assert table[0].split() == ["KEY", "HOLDER", "FENCE", "LEASE", "LEFT", "WAITERS"]
        assert [line.split()[:2] for line in table[1:]] == [["one", "me"], ["two", "me"]]
        shown = await run("inspect", "one", *words)
        assert handle.owner in shown.out
        found = json.loads((await run("inspect", "one", "--json", *words)).out)
        assert (found["held"], found["owner"]) == (True, handle.owner)
        refused = await run("release", "one", *words)
        assert refused.code == cli.TROUBLE
        assert "--force" in refused.complaint
        assert (await locks.inspect("one")).owner == handle.owner
        assert (await run("release", "--force", "one", *words)).code == cli.OK
        assert not (await locks.inspect("one")).held
        assert (await run("release", "--force", "one", *words)).code == cli.NOBODY
        assert "(free)" in (await run("inspect", "one", *words)).out


async def test_inspect_shows_everybody_who_holds_the_key(queue_url: str, key: str) -> None:
    async with asyncdlock.connect(queue_url) as locks:
        pool = locks.semaphore(key, permits=3)
        owners = [(await pool.acquire(ttl=60.0)).owner for _ in range(3)]
        shown = (await run("inspect", key, "--url", queue_url)).out
    assert [owner in shown for owner in owners] == [True] * 3
    assert shown.count("beside") == 2


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((), 2, "required"),
        (("dance",), 2, "dance"),
        (("ls",), 2, "ASYNCDLOCK_URL"),
        (("--url", "foo://x", "ls"), 2, "unknown lock URL"),
        (("--url", "redis://u:sesame@127.0.0.1:1", "ls"), 2, "cannot be reached"),
        (("--url", "redis://h?colour=red", "ls"), 2, "colour"),
        (("--url", "memory://", "inspect", "x" * 2000), 2, "at most 1024"),
        (("--url", "memory://", "hold", "k"), 2, "-- command"),
        (("--url", "memory://", "hold", "k", "sleep", "1"), 2, "sleep"),
        (("--url", "memory://", "hold", "k", "--ttl", "soon", "--", "true"), 2, "not a duration"),
        (("--url", "memory://", "hold", "k", "--", "no-such-command"), 127, "No such file"),
        (("--url", "memory://", "hold", "k", "--", "/etc/passwd"), 126, "Permission denied"),
    ],
)
async def test_trouble_is_one_sentence(words: tuple[str, ...], code: int, why: str) -> None:
    done = await run(*words)
    assert (done.code, done.out) == (code, "")
    assert why in done.complaint
    assert "sesame" not in done.err


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of it, with the program as $A."""
    return subprocess.run(
        ["sh", "-c", script],
        env=os.environ | {"A": shlex.join(PROGRAM)} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def test_an_output_that_cannot_be_written_is_no_defect() -> None:
    assert shell("$A --url memory:// ls >&-").returncode == cli.OK
    if Path("/dev/full").exists():
        done = shell("$A --url memory:// ls >/dev/full")
        assert (done.returncode, done.stderr) == (
            cli.TROUBLE,
            "asyncdlock: standard output cannot be written: No space left on device\n",
        )
    done = shell("$A --url memory:// inspect schlüssel", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout.splitlines()[0]) == (cli.OK, r"key         schl\xfcssel"), (
        done.stderr
    )


async def test_a_lock_s_name_cannot_give_orders_to_the_terminal(queue_url: str, key: str) -> None:
    name = f"{key}\x1b[2J\nforged  me  1"
    async with asyncdlock.connect(queue_url) as locks, locks.hold(name, timeout=30.0):
        listed = await run("ls", "--prefix", key, "--url", queue_url)
        shown = await run("inspect", name, "--url", queue_url)
    assert "\x1b" not in listed.out + shown.out
    assert listed.out.splitlines()[1].startswith(r"\x1b[2J\nforged  me  1 ")
    assert shown.out.splitlines()[0] == rf"key         {key}\x1b[2J\nforged  me  1"


async def test_version_and_help() -> None:
    assert (await run("--version")).out == f"asyncdlock {asyncdlock.__version__}\n"
    text = (await run("--help")).out
    for word in ("examples:", "exit codes:", "75", "76", "release --force"):
        assert word in text


async def test_the_installed_script_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("asyncdlock")
    if not script.exists():
        pytest.skip("asyncdlock is not installed here: pip install -e .")
    process = await asyncio.create_subprocess_exec(script, "--version", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode() == f"asyncdlock {asyncdlock.__version__}\n"
