"""The SQLite file of a store: its schema, how it is opened, and whether it is still there and sound."""

import asyncio
import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import TypeAlias

from harness.resource import sqlite_sql as sql

_MALFORMED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_INSPECTION_SHARE = 20  # an inspection may take a twentieth of the time
_Identity: TypeAlias = tuple[int, int]


def connect(path: str) -> sqlite3.Connection:
    """A connection that never waits: whoever finds the file locked asks again and leaves the loop free."""
    # `isolation_level=None`: transactions begin and end where the store says so.
    return sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)


def prepare(writer: sqlite3.Connection, *, sync_full: bool) -> None:
    """Make it the file of a store, or find that it is one.

    :raises sqlite3.Error: it is something else, or may not be written.
    """
    writer.execute("PRAGMA busy_timeout = 1000")  # a predecessor may still be closing the file
    (application,) = writer.execute("PRAGMA application_id").fetchone()
    (tables,) = writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != sql.APPLICATION_ID:
        raise sqlite3.DatabaseError("it is the database of another program")
    (mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("its file system does not support write-ahead logging")
    writer.execute(f"PRAGMA synchronous = {'FULL' if sync_full else 'NORMAL'}")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    if application != sql.APPLICATION_ID:
        writer.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
    writer.executescript(sql.SCHEMA)
    columns = [row[1] for row in writer.execute("PRAGMA table_info(resource)")]
    if "recent" not in columns:  # the file of an earlier version
        writer.execute("ALTER TABLE resource ADD COLUMN recent BLOB NOT NULL DEFAULT x''")
    writer.execute("PRAGMA busy_timeout = 0")


def is_locked(error: Exception) -> bool:
    """Does another program hold the file's lock, so that it is worth asking again?"""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_BUSY


def is_malformed(error: Exception) -> bool:
    """Is the file no longer what was written?"""
    return isinstance(error, sqlite3.Error) and _code(error) in _MALFORMED


def _code(error: sqlite3.Error) -> int:
    # Extended codes carry the primary one in their lowest byte; errors of the module itself have none.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class FileGone(sqlite3.OperationalError):
    """What is written now, nobody would find after a restart."""


class FileWatch:
    """Notices that the files which are written to are no longer those that a restart would find."""

    def __init__(self, path: str) -> None:
        database = Path(path).absolute()
        changes = Path(f"{database.resolve()}-wal")  # SQLite follows links first
        self._files = {file: _identity(file) for file in (str(database), str(changes))}

    def check(self) -> None:
        """:raises FileGone: one of them was deleted or replaced."""
        for file, known in self._files.items():
            found = _identity(file)
            if found == known:
                continue
            if known is not None:
                what = "deleted" if found is None else "replaced"
                raise FileGone(f"{Path(file).name} was {what} under the running resource")
            self._files[file] = found


def _identity(file: str) -> _Identity | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - Path.stat takes twice as long
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class Inspector:
    """Reads the whole file now and then, with a connection and in a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._task: asyncio.Task[str | None] | None = None
        self._connection: sqlite3.Connection | None = None
        self._due = 0.0

    async def findings(self, within: float) -> str | None:
        """What was found wrong, if anything; by the last inspection if a new one takes too long."""
        if self._task is None or (self._task.done() and time.monotonic() >= self._due):
            self._task = asyncio.create_task(asyncio.to_thread(self._inspect))
        await asyncio.wait([self._task], timeout=within)
        return self._task.result() if self._task.done() else None

    async def aclose(self) -> None:
        if self._task is not None:
            if self._connection is not None:
                self._connection.interrupt()
            await self._task

    def _inspect(self) -> str | None:
        started = time.monotonic()
        try:
            # Read-only: a file that is gone must not be made anew.
            place = f"{Path(self._path).absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(place, uri=True, check_same_thread=False)) as connection:
                self._connection = connection
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            found = str(error) if is_malformed(error) else "ok"
        finally:
            self._connection = None
            ended = time.monotonic()
            self._due = ended + _INSPECTION_SHARE * (ended - started)
        return None if found == "ok" else found
