"""Runs the real program as a child process, the way a person does."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from harness.servers.etcd_cluster import find_binary
from harness.servers.zookeeper_ensemble import find_classpath, find_java

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


@dataclass
class Program:
    """`python -m harness …`, running or ended."""

    child: asyncio.subprocess.Process
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    _readers: list[asyncio.Task[None]] = field(default_factory=list)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def code(self) -> int | None:
        return self.child.returncode

    @property
    def stdout(self) -> str:
        return "\n".join(self.out)

    @property
    def stderr(self) -> str:
        return "\n".join(self.err)

    async def line(self, wanted: Callable[[str], bool]) -> str:
        """The first line of standard output, past or future, that is `wanted`."""
        async with asyncio.timeout(PATIENCE), self._news:
            while True:
                for text in self.out:
                    if wanted(text):
                        return text
                if self._readers[0].done():
                    raise AssertionError(f"it ended without the wanted line:\n{self.stdout}\n{self.stderr}")
                await self._news.wait()

    async def under_load(self) -> None:
        """Return when arrivals are coming in."""
        await self.line(lambda text: "offered" in text)

    async def ended(self) -> "Program":
        async with asyncio.timeout(PATIENCE):
            await self.child.wait()
            await asyncio.gather(*self._readers)
        return self

    def interrupt(self) -> None:
        self.child.send_signal(signal.SIGINT)

    def signal_group(self, number: signal.Signals) -> None:
        """To all processes of its group, as Ctrl-C in a terminal does."""
        os.killpg(self.child.pid, number)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.child.pid).children(recursive=True)

    def folder(self) -> Path:
        """The run's folder, from the last line: it names the folder, or the page in it."""
        named = Path(next(text.split()[-1] for text in reversed(self.out) if text.strip()))
        return named.parent if named.name == "report.html" else named

    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.folder() / "summary.json").read_text())
        return summary

    def assert_well(self) -> None:
        """Neither lock nor resource did anything wrong, and the exit code and the verdict say so.

        On a busy machine the generator may have been late: then the run must say that instead, and the
        system must have kept it from running for about as long. Lateness of its own making is a failure.
        """
        summary = self.summary()
        checks = summary["checks"]
        assert all(check["verdict"] == "ok" for name, check in checks.items() if name != "trust"), checks
        said = (self.code, summary["verdict"], checks["trust"]["verdict"])
        if summary["doubts"]:
            assert said == (3, "unknown", "unknown"), self.stderr
            assert all(doubt.startswith("the load generator") for doubt in summary["doubts"])
            assert starved_ms(summary) >= 0.5 * summary["certificate"]["lag_p99_ms"], summary["certificate"]
        else:
            assert said == (0, "ok", "ok"), self.stderr

    async def _read(self, stream: asyncio.StreamReader, into: list[str]) -> None:
        while line := await stream.readline():
            async with self._news:
                into.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


def needs(backend: str, *, durable: bool = False) -> None:
    """What a run on this backend starts is installed; `durable`: a server that is to be killed.

    :raises ServerMissing: it is not, and the test is skipped. The program itself would end with code 2.
    """
    if backend == "zookeeper":
        find_java()  # which is not enough
        find_classpath()
    elif backend == "etcd" and durable:
        find_binary("system")


def starved_ms(summary: Mapping[str, Any]) -> float:
    """For how long the generators were ready to run and had no processor, by the system's own count."""
    share: float | None = summary["certificate"]["run_delay_share"]
    assert share is not None, "this system does not count it"
    return share * float(summary["duration_s"]) * 1000


@asynccontextmanager
async def started(
    *words: str, env: dict[str, str] | None = None, in_terminal: bool = False
) -> AsyncIterator[Program]:
    """The program while it runs; killed at the end if it still does.

    With `in_terminal` in a process group of its own, to which `Program.signal_group` sends.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harness", *words),
        cwd=ROOT,
        env=inherited | (env or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=in_terminal,
    )
    program = Program(child)
    assert child.stdout is not None
    assert child.stderr is not None
    program._readers = [
        asyncio.create_task(program._read(child.stdout, program.out)),
        asyncio.create_task(program._read(child.stderr, program.err)),
    ]
    try:
        yield program
    finally:
        if child.returncode is None:
            child.kill()
        await program.ended()


async def harness(*words: str, env: dict[str, str] | None = None) -> Program:
    """Run the program to its end."""
    async with started(*words, env=env) as program:
        return await program.ended()
