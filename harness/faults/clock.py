"""Gives a server a clock of its own that can jump and run fast or slow, by libfaketime.

Only the wall clock is faked, as when an administrator or NTP sets it; the monotonic clock stays.
It works on Valkey, whose keys expire by the wall clock. Debian's redis-server hangs under it, and etcd
does not care: its leases use the monotonic clock of Go's runtime, which no preloaded library reaches.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self

from harness.faults.journal import FaultJournal
from harness.servers import binaries
from harness.servers.server import Server

_DEBIAN = "/usr/lib"
_PATTERN = "*/faketime/libfaketime.so.1"


def find_library() -> Path:
    """The shared library of libfaketime: the wheel's or the system's.

    :raises ServerMissing: there is none; the message says how to get one.
    """
    wheel = binaries.in_wheel("libfaketime", "vendor/libfaketime/src/libfaketime.so.1")
    system = next(iter(sorted(Path(_DEBIAN).glob(_PATTERN))), None) if sys.platform == "linux" else None
    return binaries.first(
        [wheel, system],
        "No libfaketime found: pip install 'asyncdlock[clock]' brings it (GPL-2.0, and so not in the extra "
        "harness), or install it with the system's package manager (Debian: apt-get install libfaketime).",
    )


class FakeClock:
    """The clock of one server: pass `environment` to it, then `jump` and `run_at` as often as wanted.

    `time` is what the clock shows: the true time plus `offset`, growing by `rate - 1` a second.
    """

    def __init__(self, *, offset: float = 0.0, rate: float = 1.0) -> None:
        """:raises ServerMissing: libfaketime is not installed."""
        self._library = find_library()
        self._folder = Path(tempfile.mkdtemp(prefix="asyncdlock-clock-"))
        self._spec = self._folder / "faketime"
        self._rate = rate
        # libfaketime shows: true + shift + (rate - 1) * (true - start of the process).
        self._shift = offset
        self._write()

    @property
    def environment(self) -> Mapping[str, str]:
        """For the server whose clock this is to be."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._spec),
            # Look at the file at every call, not every ten seconds.
            "FAKETIME_NO_CACHE": "1",
            # Two spellings, for two versions.
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def rate(self) -> float:
        return self._rate

    def jump(self, seconds: float) -> None:
        """Set the clock forward, or back if negative."""
        self._shift += seconds
        self._write()

    def run_at(self, rate: float, server: Server) -> None:
        """From now on run at `rate` times the true speed, without a jump.

        `server` is the one whose clock it is: libfaketime counts from the start of its process, which
        is known to some 30 ms.
        """
        self._shift += (self._rate - rate) * _age(server.pid)
        self._rate = rate
        self._write()

    def _write(self) -> None:
        new = self._spec.with_suffix(".new")
        new.write_text(f"{self._shift:+.6f} x{self._rate:.6f}\n")
        new.replace(self._spec)  # at once: the server may look at any time

    def close(self) -> None:
        """Remove the clock's file; its server must have ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _age(pid: int) -> float:
    """For how long a process has run, in seconds.

    Both ends on the clock that counts from the boot: the wall clock may have been set since, and the time of
    the boot, from which others reckon, is known to whole seconds only.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def clock_jump(
    journal: FaultJournal, clock: FakeClock, seconds: float, *, who: str
) -> AsyncIterator[None]:
    """The clock is wrong by `seconds` for as long as the body runs, then right again."""
    clock.jump(seconds)
    with journal.fault("clock jump", who=who, seconds=seconds):
        try:
            yield
        finally:
            clock.jump(-seconds)


@contextlib.asynccontextmanager
async def clock_jump_of_leases(
    journal: FaultJournal, clock: FakeClock, seconds: float, *, who: str, trusted_after: float
) -> AsyncIterator[None]:
    """The same of a server whose leases end by that clock: early, by a jump ahead, be it there or back.

    Two may then rely on one lock: the fault is noted as going on until `trusted_after` seconds after the
    clock is right again, which should be a TTL.
    """
    with journal.fault("clock jump", who=who, seconds=seconds, frees=True):
        clock.jump(seconds)
        try:
            yield
        finally:
            clock.jump(-seconds)
        await asyncio.sleep(trusted_after)


@contextlib.asynccontextmanager
async def clock_rate(
    journal: FaultJournal, clock: FakeClock, rate: float, server: Server, *, who: str
) -> AsyncIterator[None]:
    """The clock runs at `rate` for as long as the body runs, then at true speed again; it stays ahead."""
    before = clock.rate
    clock.run_at(rate, server)
    with journal.fault("clock rate", who=who, rate=rate):
        try:
            yield
        finally:
            clock.run_at(before, server)
