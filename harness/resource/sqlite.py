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

from harness.load.clock import now
from harness.resource import sqlite_sql as sql
from harness.resource.decision import (
    READ,
    Fencing,
    Mark,
    Outcome,
    State,
    Write,
    is_remembered,
    judge,
    lowered,
    raised,
)
from harness.resource.sqlite_file import (
    FileGone,
    FileWatch,
    Inspector,
    connect,
    is_locked,
    is_malformed,
    prepare,
)
from harness.resource.store import LOG_PAGE, LOG_ROWS, Found, LogRow, Retention, StoreError, Written, log_row

# A transaction ends early at this size, so that the loop is never held for long: about 5 ms.
_MOST_OPERATIONS = 256
_MOST_BYTES = 1 << 20
# The log of changes is folded into the database when it has grown by about this much.
_CHECKPOINT_BYTES = 16 << 20
_BYTES_PER_OPERATION = 4096  # it changes about one page
_DROP_EVERY = 1024
_DROP_AT_MOST = 4 * _DROP_EVERY
_LOCK_PATIENCE = 5.0
_LOCK_RETRY = 0.01
_INSPECT_WITHIN = 0.5


class _FencedRead(NamedTuple):
    key: str
    token: int


class _Lowering(NamedTuple):
    key: str
    token: int


class _Check(NamedTuple):
    """Nothing but a write."""


_Operation: TypeAlias = Write | _FencedRead | _Lowering | _Check
_Answer: TypeAlias = Written | Found | Mark | None
_Batch: TypeAlias = list[tuple[_Operation, asyncio.Future[_Answer]]]


class SqliteStore:
    """One connection that writes, used by loop or thread but never both, and one that reads."""

    def __init__(
        self, path: str, fencing: Fencing, *, log: bool, retention: Retention, sync_full: bool
    ) -> None:
        """:raises sqlite3.Error: `path` is not a database, or may not be written."""
        self._fencing = fencing
        self._keep_log = log
        self._most_rows = retention.rows or LOG_ROWS
        self._most_age = int(retention.age * 1e9)
        self._since_drop = _DROP_EVERY
        self._sync_full = sync_full
        self._writer = connect(path)
        prepare(self._writer, sync_full=sync_full)
        self._reader = connect(path)
        self._reader.execute("PRAGMA query_only = ON")
        self._watch = FileWatch(path)
        self._inspector = Inspector(path)
        self._broken: StoreError | None = None
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
            raise self._failure(error) from error

    async def lower(self, key: str, token: int) -> Mark:
        before = await self._decided(_Lowering(key, token))
        assert isinstance(before, Mark)
        return before

    async def log(self, after: int) -> AsyncIterator[list[LogRow]]:
        while True:
            try:
                rows = self._reader.execute(sql.PAGE, (after, LOG_PAGE)).fetchall()
            except sqlite3.Error as error:
                raise self._failure(error) from error
            if not rows:
                return
            page = [LogRow(*row) for row in rows]
            yield page
            after = page[-1].seq

    async def log_from(self) -> int:
        try:
            (oldest,) = self._reader.execute("SELECT min(seq) FROM log").fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return oldest or 1

    async def check(self) -> None:
        await self._decided(_Check())
        found = await self._inspector.findings(_INSPECT_WITHIN)
        if found is not None:
            self._broken = _store_error(found)
            raise self._broken

    async def aclose(self) -> None:
        """Commit what is queued, then close."""
        self._closing = True
        self._wanted.set()
        await self._task
        await self._inspector.aclose()
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
                if self._queue:  # too much for one transaction: others have their turn in between
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
            if self._broken is not None:
                raise self._broken
            await self._begin()
            answers = self._decide(batch)
            self._watch.check()
            if self._sync_full:
                await self._loop.run_in_executor(self._thread, self._writer.commit)
            else:
                self._writer.commit()
        except Exception as error:
            # Whatever went wrong, the batch is undone and its clients are told: no one hangs.
            with contextlib.suppress(sqlite3.Error):
                self._writer.rollback()
            failure = self._failure(error)
            for _, future in batch:
                if not future.done():
                    future.set_exception(failure)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
        if self._uncheckpointed >= _CHECKPOINT_BYTES:
            self._uncheckpointed = 0
            await self._loop.run_in_executor(self._thread, self._checkpoint)

    async def _begin(self) -> None:
        """Another program may have the file locked: wait for it without holding up whoever only reads."""
        deadline = self._loop.time() + _LOCK_PATIENCE
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_locked(error) or self._loop.time() > deadline:
                    raise
                await asyncio.sleep(_LOCK_RETRY)
            else:
                return

    def _failure(self, error: Exception) -> StoreError:
        """What the clients are told. After some errors no write can be promised until a restart."""
        if isinstance(error, StoreError):
            return error
        failure = _store_error(error)
        if isinstance(error, FileGone) or is_malformed(error):
            self._broken = failure
        return failure

    def _decide(self, batch: _Batch) -> list[_Answer]:
        answers: list[_Answer] = []
        rows: list[tuple[object, ...]] = []
        execute = self._writer.execute
        for operation, _ in batch:
            if isinstance(operation, _FencedRead):
                answers.append(self._read(operation))
                continue
            if isinstance(operation, _Lowering):
                answers.append(self._lower(operation))
                continue
            if isinstance(operation, _Check):
                execute(sql.CHECK)
                answers.append(None)
                continue
            row = execute(sql.STATE, (operation.key,)).fetchone()
            before = _NEVER_WRITTEN if row is None else State(Mark(row[0], row[1]), *row[2:])
            outcome, after = judge(self._fencing, before, operation)
            if outcome is Outcome.ACCEPTED:
                execute(sql.PUT, (operation.key, *after.mark, *after[1:], operation.body))
            certain = outcome is not Outcome.STALE or is_remembered(before, operation)
            written = Written(outcome, before.mark, after.version, certain)
            answers.append(written)
            if self._keep_log:
                rows.append(log_row(0, operation, written)[1:])
        if rows:
            self._writer.executemany(sql.APPEND, rows)
            self._since_drop += len(rows)
            if self._since_drop >= _DROP_EVERY:
                self._since_drop = 0
                self._drop_old_rows()
        return answers

    def _drop_old_rows(self) -> None:
        (newest,) = self._writer.execute(sql.NEWEST).fetchone()
        oldest_wanted = now() - self._most_age
        (too_old,) = self._writer.execute(sql.LAST_TOO_OLD, (_DROP_AT_MOST, oldest_wanted)).fetchone()
        last = min(max(newest - self._most_rows, too_old or 0), newest - 1)
        self._writer.execute(sql.DROP, (last, _DROP_AT_MOST))

    def _read(self, read: _FencedRead) -> Found:
        found = _found(self._writer, read.key)
        mark = raised(found.mark, read.token, READ)
        if mark is None:
            return Found(stale=True, mark=found.mark)
        if mark != found.mark:
            self._writer.execute(sql.RAISE, (read.key, *mark))
        return found._replace(mark=mark)

    def _lower(self, lowering: _Lowering) -> Mark:
        before = _found(self._writer, lowering.key).mark
        self._writer.execute(sql.RAISE, (lowering.key, *lowered(before, lowering.token)))
        return before

    def _checkpoint(self) -> None:
        # Between two batches nobody writes, so that it reaches the end and the log starts over. If
        # it fails the log is merely longer: the next commit reports a broken disk.
        with contextlib.suppress(sqlite3.Error):
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


_NEVER_WRITTEN = State()


def _found(connection: sqlite3.Connection, key: str) -> Found:
    row = connection.execute(sql.VALUE, (key,)).fetchone()
    return Found(False, Mark()) if row is None else Found(False, Mark(row[0], row[1]), *row[2:])


def _store_error(error: object) -> StoreError:
    return StoreError(f"the SQLite store failed: {error}")


async def open_store(rest: str, fencing: Fencing, *, log: bool, retention: Retention) -> SqliteStore:
    """:raises StoreError: `rest` is not `PATH[?sync=full|normal]`, or cannot be opened for writing."""
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    sync = options.pop("sync", "normal")
    if not path or options or sync not in ("normal", "full"):
        raise StoreError(f"'sqlite:{rest}' is no store: use sqlite:PATH or sqlite:PATH?sync=full")
    try:
        return SqliteStore(path, fencing, log=log, retention=retention, sync_full=sync == "full")
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the SQLite store {path!r}: {error}") from error
