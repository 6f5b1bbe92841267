"""The store that lasts: SQLite in WAL mode, one transaction for all that arrives in a loop tick.

Decisions are made inside the transaction, from the rows themselves, in the order of arrival;
no answer leaves before the commit. So whatever was answered, refusals included, is still true
after a kill -9 (the operating system has the pages) or, with `?sync=full`, after a power cut.

Statements run on the event loop: one costs a few microseconds, less than handing it to a thread
that must take the interpreter lock back after each. Measured with 64 writers: a write costs 85 µs of
CPU inline and 114 to 147 µs in a thread, where it also waits twice as long. What waits for the disk
does run in a thread: the commit when it syncs, and the checkpoint, which stopped the loop for 25 ms.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from harness.resource.decision import READ, Fencing, Mark, Outcome, State, Write, judge, raised
from harness.resource.store import LOG_PAGE, Found, LogRow, StoreError, Written, log_row

_APPLICATION_ID = 0x41444C52
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
CREATE TABLE IF NOT EXISTS resource (
    key        TEXT PRIMARY KEY,
    mark_token INTEGER NOT NULL,
    mark_seq   INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    digest     TEXT NOT NULL,
    body       BLOB
);
CREATE TABLE IF NOT EXISTS log (
    seq       INTEGER PRIMARY KEY,
    key       TEXT NOT NULL,
    token     INTEGER NOT NULL,
    fence_seq INTEGER NOT NULL,
    outcome   TEXT NOT NULL,
    seen      INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    started   INTEGER NOT NULL,
    decided   INTEGER NOT NULL,
    owner     TEXT,
    digest    TEXT NOT NULL
);
"""
_STATE = "SELECT mark_token, mark_seq, token, seq, version, digest FROM resource WHERE key = ?"
_VALUE = "SELECT mark_token, mark_seq, token, seq, version, body FROM resource WHERE key = ?"
_PUT = """
INSERT INTO resource VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    mark_token = excluded.mark_token, mark_seq = excluded.mark_seq, token = excluded.token,
    seq = excluded.seq, version = excluded.version, digest = excluded.digest, body = excluded.body
"""
_RAISE = """
INSERT INTO resource VALUES (?, ?, ?, 0, 0, 0, '', NULL)
ON CONFLICT (key) DO UPDATE SET mark_token = excluded.mark_token, mark_seq = excluded.mark_seq
"""
_APPEND = "INSERT INTO log VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PAGE = "SELECT * FROM log WHERE seq > ? ORDER BY seq LIMIT ?"

# A transaction ends early at this size, so that the loop is never held for long: about 5 ms.
_MOST_OPERATIONS = 256
_MOST_BYTES = 1 << 20
# The log of changes is folded into the database when it has grown by about this much.
_CHECKPOINT_BYTES = 16 << 20
_BYTES_PER_OPERATION = 4096  # it changes about one page


class _FencedRead(NamedTuple):
    key: str
    token: int


_Operation: TypeAlias = Write | _FencedRead
_Answer: TypeAlias = Written | Found
_Batch: TypeAlias = list[tuple[_Operation, asyncio.Future[_Answer]]]


class SqliteStore:
    """One connection that writes, used by loop or thread but never both, and one that reads."""

    def __init__(self, path: str, fencing: Fencing, *, log: bool, sync_full: bool) -> None:
        """:raises sqlite3.Error: `path` is not a database, or may not be written."""
        self._fencing = fencing
        self._keep_log = log
        self._sync_full = sync_full
        self._writer = _connect(path)
        _prepare(self._writer, sync_full=sync_full)
        self._reader = _connect(path)
        self._reader.execute("PRAGMA query_only = ON")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._loop = asyncio.get_running_loop()
        self._queue: _Batch = []
        self._wanted = asyncio.Event()
        self._closing = False
        self._uncheckpointed = 0
        self._task = asyncio.create_task(self._serve())

    async def write(self, write: Write) -> Written:
        answer = await self._decided(write)
        assert isinstance(answer, Written)
        return answer

    async def read(self, key: str, token: int) -> Found:
        if token and self._fencing is Fencing.ON:
            answer = await self._decided(_FencedRead(key, token))
            assert isinstance(answer, Found)
            return answer
        # The reading connection sees committed rows only: nothing that a crash could take back.
        try:
            return _found(self._reader, key)
        except sqlite3.Error as error:
            raise _store_error(error) from error

    async def log(self, after: int) -> AsyncIterator[list[LogRow]]:
        while True:
            try:
                rows = self._reader.execute(_PAGE, (after, LOG_PAGE)).fetchall()
            except sqlite3.Error as error:
                raise _store_error(error) from error
            if not rows:
                return
            page = [LogRow(*row) for row in rows]
            yield page
            after = page[-1].seq

    async def check(self) -> None:
        try:
            self._reader.execute("SELECT 1 FROM resource LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise _store_error(error) from error

    async def aclose(self) -> None:
        """Commit what is queued, then close."""
        self._closing = True
        self._wanted.set()
        await self._task
        self._thread.shutdown()
        self._reader.close()
        self._writer.close()

    def _decided(self, operation: _Operation) -> asyncio.Future[_Answer]:
        future: asyncio.Future[_Answer] = self._loop.create_future()
        self._queue.append((operation, future))
        self._wanted.set()
        return future

    async def _serve(self) -> None:
        """Batch after batch, for as long as the store is open.

        Woken by the first operation of a tick, it runs after the others of that tick were queued.
        """
        while not self._closing:
            await self._wanted.wait()
            self._wanted.clear()
            while self._queue:
                await self._process(self._next_batch())
                await asyncio.sleep(0)

    def _next_batch(self) -> _Batch:
        size = 0
        for count, (operation, _) in enumerate(self._queue, start=1):
            size += len(operation.body) if isinstance(operation, Write) else 0
            if count == _MOST_OPERATIONS or size >= _MOST_BYTES:
                break
        batch, self._queue = self._queue[:count], self._queue[count:]
        self._uncheckpointed += size + count * _BYTES_PER_OPERATION
        return batch

    async def _process(self, batch: _Batch) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            answers = self._decide(batch)
            if self._sync_full:
                await self._loop.run_in_executor(self._thread, self._writer.commit)
            else:
                self._writer.commit()
        except Exception as error:
            # Whatever went wrong, the batch is undone and its clients are told: no one hangs.
            with contextlib.suppress(sqlite3.Error):
                self._writer.rollback()
            for _, future in batch:
                if not future.done():
                    future.set_exception(_store_error(error))
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
        if self._uncheckpointed >= _CHECKPOINT_BYTES:
            self._uncheckpointed = 0
            await self._loop.run_in_executor(self._thread, self._checkpoint)

    def _decide(self, batch: _Batch) -> list[_Answer]:
        answers: list[_Answer] = []
        rows: list[tuple[object, ...]] = []
        execute = self._writer.execute
        for operation, _ in batch:
            if isinstance(operation, _FencedRead):
                answers.append(self._read(operation))
                continue
            row = execute(_STATE, (operation.key,)).fetchone()
            before = _NEVER_WRITTEN if row is None else State(Mark(row[0], row[1]), *row[2:])
            outcome, after = judge(self._fencing, before, operation)
            if outcome is Outcome.ACCEPTED:
                execute(_PUT, (operation.key, *after.mark, *after[1:], operation.body))
            written = Written(outcome, before.mark, after.version)
            answers.append(written)
            if self._keep_log:
                rows.append(log_row(0, operation, written)[1:])
        if rows:
            self._writer.executemany(_APPEND, rows)
        return answers

    def _read(self, read: _FencedRead) -> Found:
        found = _found(self._writer, read.key)
        mark = raised(found.mark, read.token, READ)
        if mark is None:
            return Found(stale=True, mark=found.mark)
        if mark != found.mark:
            self._writer.execute(_RAISE, (read.key, *mark))
        return found._replace(mark=mark)

    def _checkpoint(self) -> None:
        # Between two batches nobody writes, so that it reaches the end and the log starts over. If
        # it fails the log is merely longer: the next commit reports a broken disk.
        with contextlib.suppress(sqlite3.Error):
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


_NEVER_WRITTEN = State()


def _connect(path: str) -> sqlite3.Connection:
    # `isolation_level=None`: transactions begin and end where this module says so. The time-out
    # is for strangers that lock the file; it holds up the loop, hence short.
    return sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)


def _prepare(writer: sqlite3.Connection, *, sync_full: bool) -> None:
    (application,) = writer.execute("PRAGMA application_id").fetchone()
    (tables,) = writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != _APPLICATION_ID:
        raise sqlite3.DatabaseError("it is the database of another program")
    (mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("its file system does not support write-ahead logging")
    writer.execute(f"PRAGMA synchronous = {'FULL' if sync_full else 'NORMAL'}")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.executescript(_SCHEMA)


def _found(connection: sqlite3.Connection, key: str) -> Found:
    row = connection.execute(_VALUE, (key,)).fetchone()
    return Found(False, Mark()) if row is None else Found(False, Mark(row[0], row[1]), *row[2:])


def _store_error(error: Exception) -> StoreError:
    return StoreError(f"the SQLite store failed: {error}")


async def open_store(rest: str, fencing: Fencing, *, log: bool) -> SqliteStore:
    """:raises StoreError: `rest` is not `PATH[?sync=full|normal]`, or cannot be opened for writing."""
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    sync = options.pop("sync", "normal")
    if not path or options or sync not in ("normal", "full"):
        raise StoreError(f"'sqlite:{rest}' is no store: use sqlite:PATH or sqlite:PATH?sync=full")
    try:
        return SqliteStore(path, fencing, log=log, sync_full=sync == "full")
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the SQLite store {path!r}: {error}") from error
