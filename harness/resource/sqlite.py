"""The store that lasts: SQLite in WAL mode, one transaction for all that arrives in a loop tick.

No answer leaves before the commit. So whatever was answered, refusals included, is still true after
a kill -9 (the operating system has the pages) or, with `?sync=full`, after a power cut.

An operation that comes alone is committed where it is asked for. To wait for others of its tick costs two
turns of the loop, more than the transaction itself, and writes of one hot key always come one at a time.

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
from typing import TypeAlias
from urllib.parse import parse_qsl

from harness.resource import sqlite_sql as sql
from harness.resource.decision import Fencing, Mark, Write
from harness.resource.sqlite_decisions import Answer, Check, Decisions, FencedRead, Lowering, Operation, found
from harness.resource.sqlite_file import (
    FileGone,
    FileWatch,
    Inspector,
    connect,
    is_locked,
    is_malformed,
    prepare,
)
from harness.resource.store import LOG_PAGE, Found, LogRow, Retention, StoreError, Written

# A transaction ends early at this size, so that the loop is never held for long: about 5 ms.
_MOST_OPERATIONS = 256
_MOST_BYTES = 2 << 20
# The log of changes is folded into the database when it has grown by about this much.
_CHECKPOINT_BYTES = 16 << 20
_BYTES_PER_OPERATION = 4096  # it changes about one page
_LOCK_PATIENCE = 5.0
_LOCK_RETRY = 0.01
_INSPECT_WITHIN = 0.5

_Batch: TypeAlias = list[tuple[Operation, asyncio.Future[Answer]]]


class SqliteStore:
    """One connection that writes, used by loop or thread but never both, and one that reads."""

    def __init__(
        self, path: str, fencing: Fencing, *, log: bool, retention: Retention, sync_full: bool
    ) -> None:
        """:raises sqlite3.Error: `path` is not a database, or may not be written."""
        self._fencing = fencing
        self._sync_full = sync_full
        self._writer = connect(path)
        prepare(self._writer, sync_full=sync_full)
        self._decisions = Decisions(self._writer, fencing, log=log, retention=retention)
        self._reader = connect(path)
        self._reader.execute("PRAGMA query_only = ON")
        self._watch = FileWatch(path)
        self._inspector = Inspector(path)
        self._broken: StoreError | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._loop = asyncio.get_running_loop()
        self._queue: _Batch = []
        self._wanted = asyncio.Event()
        self._alone = not sync_full
        """The next operation may be committed at once: in the last tick with any there was one."""
        self._in_tick = 0
        self._closing = False
        self._uncheckpointed = 0
        self._task = asyncio.create_task(self._serve())

    async def write(self, write: Write) -> Written:
        answer = await self._decided(write)
        assert isinstance(answer, Written)
        return answer

    async def read(self, key: str, token: int) -> Found:
        if token and self._fencing is Fencing.ON:
            answer = await self._decided(FencedRead(key, token))
            assert isinstance(answer, Found)
            return answer
        # The reading connection sees committed rows only: nothing that a crash could take back.
        try:
            return found(self._reader, key)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    async def lower(self, key: str, token: int) -> Mark:
        before = await self._decided(Lowering(key, token))
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
        await self._decided(Check())
        damage = await self._inspector.findings(_INSPECT_WITHIN)
        if damage is not None:
            self._broken = _store_error(damage)
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

    async def _decided(self, operation: Operation) -> Answer:
        self._in_tick += 1
        if self._alone and self._broken is None and self._uncheckpointed < _CHECKPOINT_BYTES:
            self._alone = False
            self._loop.call_soon(self._look_back)
            try:
                return self._decide_alone(operation)
            except sqlite3.Error as error:
                if not is_locked(error):
                    raise self._failure(error) from error
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._queue.append((operation, future))
        self._wanted.set()
        return await future

    def _decide_alone(self, operation: Operation) -> Answer:
        """A transaction for one.

        :raises sqlite3.Error: nothing was done; another program may have the file locked.
        """
        try:
            self._writer.execute(sql.BEGIN)
            (answer,) = self._decisions.decide((operation,))
            self._watch.check()
            self._writer.execute(sql.COMMIT)
        except BaseException:
            self._undo()
            raise
        self._uncheckpointed += _size(operation)
        return answer

    def _look_back(self) -> None:
        """An operation was committed as if it were alone. Was it?"""
        if not self._queue:  # else it was not, and the batch sees to the rest
            self._tick_over()

    def _tick_over(self) -> None:
        self._alone = self._in_tick <= 1 and not self._sync_full
        self._in_tick = 0

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
            size += _size(operation)
            if count == _MOST_OPERATIONS or size >= _MOST_BYTES:
                break
        batch, self._queue = self._queue[:count], self._queue[count:]
        self._uncheckpointed += size
        return batch

    async def _process(self, batch: _Batch) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            await self._begin()
            answers = self._decisions.decide([operation for operation, _ in batch])
            self._watch.check()
            if self._sync_full:
                await self._loop.run_in_executor(self._thread, self._writer.commit)
            else:
                self._writer.execute(sql.COMMIT)
        except Exception as error:
            # Whatever went wrong, the batch is undone and its clients are told: no one hangs.
            self._undo()
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
        if not self._queue:
            self._tick_over()

    async def _begin(self) -> None:
        """Another program may have the file locked: wait for it without holding up whoever only reads."""
        deadline = self._loop.time() + _LOCK_PATIENCE
        while True:
            try:
                self._writer.execute(sql.BEGIN)
            except sqlite3.OperationalError as error:
                if not is_locked(error) or self._loop.time() > deadline:
                    raise
                await asyncio.sleep(_LOCK_RETRY)
            else:
                return

    def _undo(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._writer.rollback()

    def _failure(self, error: Exception) -> StoreError:
        """What the clients are told. After some errors no write can be promised until a restart."""
        if isinstance(error, StoreError):
            return error
        failure = _store_error(error)
        if isinstance(error, FileGone) or is_malformed(error):
            self._broken = failure
        return failure

    def _checkpoint(self) -> None:
        # Between two batches nobody writes, so that it reaches the end and the log starts over. If
        # it fails the log is merely longer: the next commit reports a broken disk.
        with contextlib.suppress(sqlite3.Error):
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _size(operation: Operation) -> int:
    """About how many bytes are added to the log of changes."""
    return _BYTES_PER_OPERATION + (len(operation.body) if isinstance(operation, Write) else 0)


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
